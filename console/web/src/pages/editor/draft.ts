import type { components } from "../../api.gen";
import { print } from "../../parts/json";

export type Spec = components["schemas"]["Spec"];
type Schedule = components["schemas"]["Schedule"];

/** What the editor edits. Payload and labels are texts, so that they are sent as they were typed. */
export interface Draft {
  workflow: string;
  key: string;
  subject: string;
  spec: Spec;
  policy: Record<string, unknown>;
  delivery: Record<string, unknown>;
  labels: string;
  note: string;
  payload: string;
}

export const fresh = (zone: string, query: Record<string, string>): Draft => ({
  workflow: query.workflow ?? "",
  key: query.key ?? "",
  subject: query.subject ?? "",
  spec: { timezone: zone, cron: ["0 8 * * 1-5"] },
  policy: {},
  delivery: {},
  labels: "",
  note: "",
  payload: "",
});

/** Removes from an object what the schedule only inherits from its workflow, so that it goes on to inherit it. */
function own(of: Record<string, unknown>, at: string, inherited: string[]): Record<string, unknown> {
  const kept: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(of)) {
    const pointer = `${at}/${name}`;
    if (inherited.includes(pointer)) continue;
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      const inner = own(value as Record<string, unknown>, pointer, inherited);
      if (Object.keys(inner).length) kept[name] = inner;
    } else kept[name] = value;
  }
  return kept;
}

/** The draft of a stored schedule. */
export function draftOf(s: Schedule): Draft {
  return {
    workflow: s.workflow,
    key: s.key,
    subject: s.subject === s.key ? "" : s.subject,
    spec: s.spec,
    policy: own(s.policy as Record<string, unknown>, "/policy", s.inherited),
    delivery: own(s.delivery as Record<string, unknown>, "/delivery", s.inherited),
    labels: Object.entries(s.labels ?? {})
      .map(([name, value]) => `${name}: ${value}`)
      .join("\n"),
    note: s.note ?? "",
    payload: s.payload === null || s.payload === undefined ? "" : print(s.payload),
  };
}

/** Reads labels, one a line: plan: pro. */
export function labelsOf(text: string): Record<string, string> {
  const lines = text.split("\n").filter((l) => l.trim());
  return Object.fromEntries(
    lines.map((l) => {
      const colon = l.indexOf(":");
      return colon < 0 ? [l.trim(), ""] : [l.slice(0, colon).trim(), l.slice(colon + 1).trim()];
    }),
  );
}

/** The definition without its payload, for comparisons. */
export const definition = (d: Draft) => ({ subject: d.subject || d.key, spec: d.spec, policy: d.policy, delivery: d.delivery, labels: labelsOf(d.labels), note: d.note || null });

/** The body of the PUT. The payload is in it as it was typed. */
export function bodyOf(d: Draft): string {
  const text = JSON.stringify(definition(d));
  return d.payload.trim() ? `${text.slice(0, -1)},"payload":${d.payload}}` : text;
}

export interface Simple {
  days: number[];
  times: string[];
}

/** The spec as days and times of day, if it is no more than that. Sunday is 0. */
export function simpleOf(spec: Spec): Simple | null {
  const { timezone: _zone, cron, ...rest } = spec;
  const lines = typeof cron === "string" ? [cron] : (cron ?? []);
  if (Object.keys(rest).some((k) => !["exclude", "jitter", "dst", "start_at", "end_at"].includes(k)) || lines.length === 0) return null;
  const found = lines.map((l) => /^(\d{1,2}) (\d{1,2}) \* \* (\*|[0-7](?:[-,][0-7])*)$/.exec(l.trim()));
  if (found.some((m) => !m) || new Set(found.map((m) => m?.[3])).size > 1) return null;
  return { days: daysOf(found[0]?.[3] ?? "*"), times: found.map((m) => `${m?.[2].padStart(2, "0")}:${m?.[1].padStart(2, "0")}`) };
}

function daysOf(field: string): number[] {
  if (field === "*") return [0, 1, 2, 3, 4, 5, 6];
  const all = field.split(",").flatMap((part) => {
    const [from, to = from] = part.split("-").map(Number);
    return Array.from({ length: to - from + 1 }, (_, i) => (from + i) % 7);
  });
  return [...new Set(all)].sort((a, b) => a - b);
}

/** Cron for days and times: one line for each time. */
export function cronOf({ days, times }: Simple): string[] {
  const runs: string[] = [];
  for (let i = 0; i < days.length; i++) {
    const from = days[i];
    while (days[i + 1] === days[i] + 1) i++;
    runs.push(days[i] === from ? `${from}` : `${from}-${days[i]}`);
  }
  const field = days.length === 7 ? "*" : runs.join(",");
  return times.filter(Boolean).map((t) => `${Number(t.slice(3, 5))} ${Number(t.slice(0, 2))} * * ${field}`);
}

const fields: Record<number, string[]> = {
  5: ["minute", "hour", "day of month", "month", "day of week"],
  6: ["second", "minute", "hour", "day of month", "month", "day of week"],
  7: ["second", "minute", "hour", "day of month", "month", "day of week", "year"],
};

/** The name of the cron field at a place in the text. */
export function fieldAt(text: string, caret: number): string {
  const begin = text.lastIndexOf("\n", caret - 1) + 1;
  const end = text.indexOf("\n", caret);
  const line = text.slice(begin, end < 0 ? undefined : end);
  const names = fields[line.trim().split(/\s+/).length];
  const before =
    line
      .slice(0, caret - begin)
      .trimStart()
      .split(/\s+/).length - 1;
  return names?.[Math.min(before, names.length - 1)] ?? "";
}
