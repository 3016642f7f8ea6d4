import { type OutcomeName, shapes } from "../../parts/outcome";
import type { Operation } from "./page";

const looks: Record<string, OutcomeName> = { succeeded: "succeeded", failed: "failed", cancelled: "cancelled", running: "running", pending: "waiting" };

/** The state of an operation: a shape in its colour and a word. */
export function State({ of }: { of: string }) {
  const o = looks[of] ?? "waiting";
  return (
    <span class={`outcome ${o}`}>
      <span class="shape" aria-hidden="true">
        {shapes[o]}
      </span>
      {of}
    </span>
  );
}

const params = (o: Operation) => (o.params ?? {}) as { action?: string; workflow?: string; subject?: string; calendar?: string };

/** What an operation does, in words. */
export function title(o: Operation): string {
  const p = params(o);
  const kind = (p.action ? `${p.action} schedules` : o.kind).replaceAll("_", " ");
  const of = p.workflow ?? p.subject ?? p.calendar;
  return of ? `${kind}: ${of}` : kind;
}

/** Whether it is a pause of many schedules, which can be undone exactly. */
export const pauses = (o: Operation) => params(o).action === "pause" && o.state !== "pending";

/** How far an operation is. */
export function Progress({ of: o }: { of: Operation }) {
  const total = o.total === null ? null : Number(o.total);
  const done = Number(o.done);
  const words = total === null ? `${done.toLocaleString("en")} done` : `${done.toLocaleString("en")} of ${total.toLocaleString("en")}`;
  return (
    <span class="buttons nowrap">
      {total !== null && <progress max={Math.max(1, total)} value={Math.min(done, total)} aria-label={words} />}
      <span class="num">{words}</span>
    </span>
  );
}
