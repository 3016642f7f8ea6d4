import type { components } from "../../api.gen";
import { call, type Got, read } from "../../call";
import { POLL, refresh, useQuery } from "../../query";

export type Schedule = components["schemas"]["Schedule"];
export type TickRecord = components["schemas"]["TickRecord"];
export type Revision = components["schemas"]["Revision"];

/** One schedule with what its tabs need. */
export interface Shown {
  s: Schedule;
  etag: string;
  name: { workflow: string; key: string };
}

/** Reads a schedule and follows it. */
export function useSchedule(workflow: string, key: string) {
  return useQuery({
    key: ["schedule", workflow, key],
    fn: (signal) => call("get", "/v1/workflows/{workflow}/schedules/{key}", { path: { workflow, key }, signal }) as Promise<Got<Schedule>>,
    every: POLL,
  });
}

/** Reads the newest 200 versions of a schedule. */
export function useRevisions({ s, name }: Shown) {
  return useQuery({
    key: ["schedule", name.workflow, name.key, "revisions", s.version],
    fn: (signal) => read("/v1/workflows/{workflow}/schedules/{key}/revisions", { path: name, query: { limit: 200 }, signal }),
    keep: true,
  });
}

/** What a revision defines, without what is of its change. */
export const definition = (r: Revision) => ({ subject: r.subject, spec: r.spec, policy: r.policy, delivery: r.delivery, labels: r.labels, note: r.note, status: r.status, payload: r.payload });

/** Reads everything of a schedule again after a change. */
export const again = (name: { workflow: string; key: string }) => refresh(["schedule", name.workflow, name.key]);
