import type { ComponentType } from "preact";

/** A page. Each folder of pages has a file route.ts that exports one by default, and main finds it by itself. */
export interface Route {
  /** Its path behind /console/{tenant}: "/ticks/:id". */
  path: string;
  title: string;
  page: () => Promise<{ default: ComponentType }>;
  /** Its place in the rail; absent: it is not there. */
  rail?: { order: number; icon: string; text: string; group?: string; narrow?: boolean; platform?: boolean };
  /** The key behind g that opens it. */
  key?: string;
}

const found = import.meta.glob<Route | Route[]>("./pages/*/route.ts", { eager: true, import: "default" });

/** All pages. A path with a fixed segment is before one with a parameter. */
export const routes: Route[] = Object.values(found)
  .flat()
  .sort((a, b) => a.path.replaceAll(":", "~").localeCompare(b.path.replaceAll(":", "~")));

/** The pages of the rail in their order. */
export const rail = routes.filter((r) => r.rail).sort((a, b) => (a.rail?.order ?? 0) - (b.rail?.order ?? 0));
