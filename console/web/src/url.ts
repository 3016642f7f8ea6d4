import { useLocation } from "preact-iso";
import { home } from "./session";

/** Writes the address of a page: link("schedules", workflow, key). Slashes in a part are encoded. */
export const link = (...parts: string[]) => `/console/${[home.value, ...parts].map(encodeURIComponent).join("/")}`;

/** The address of a schedule's page. */
export const scheduleLink = (workflow: string, key: string) => link("schedules", workflow, key);

/** The query of the address, and a function that changes some of its members. "" removes one. */
export function useParams(): [Record<string, string>, (changed: Record<string, string | undefined>, replace?: boolean) => void] {
  const { query, path, route } = useLocation();
  return [
    query,
    (changed, replace = true) => {
      const next = new URLSearchParams(location.search);
      for (const [name, value] of Object.entries(changed)) {
        if (value) next.set(name, value);
        else next.delete(name);
      }
      const text = next.toString();
      route(text ? `${path}?${text}` : path, replace);
    },
  ];
}
