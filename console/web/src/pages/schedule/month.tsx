import { useLocation } from "preact-iso";
import { read } from "../../call";
import { now } from "../../live";
import { Await, Panel } from "../../parts/basic";
import { dstWords } from "../../parts/clock";
import { type Mark, Month, step, weeksOf } from "../../parts/month";
import { shapes } from "../../parts/outcome";
import { useQuery } from "../../query";
import { instantOf, wall } from "../../time";
import { link, scheduleLink, useParams } from "../../url";
import type { Shown } from "./data";

const at = "/v1/workflows/{workflow}/schedules/{key}" as const;

/** What fired and what is to come, day by day in the schedule's zone. */
export default function MonthTab({ of: { s, name } }: { of: Shown }) {
  const zone = s.timezone_in_force;
  const { route } = useLocation();
  const [query, change] = useParams();
  const today = wall(now(), zone).slice(0, 10);
  const month = /^\d{4}-\d\d$/.test(query.month ?? "") ? query.month : today.slice(0, 7);
  const weeks = weeksOf(month);
  const first = instantOf(`${weeks[0][0]}T00:00`, zone);
  const end = instantOf(`${weeks[5][6]}T23:59`, zone);
  const marks = useQuery({
    key: ["schedule", name.workflow, name.key, "month", month, s.version, zone, first],
    fn: async (signal): Promise<{ marks: Mark[]; until?: string }> => {
      const past = first < new Date(now()).toISOString() ? await read(`${at}/ticks`, { path: name, query: { from: first, to: end, limit: 1000 }, signal }) : { items: [] };
      const from = Math.max(Date.parse(first) - 1000, now());
      const ahead =
        from < Date.parse(end) && s.status === "active"
          ? await read(`${at}/upcoming`, { path: name, query: { from: new Date(from).toISOString(), count: 1000 }, signal })
          : { ticks: [], exhausted: true };
      const coming = ahead.ticks.filter((t) => t.timestamp <= end);
      return {
        marks: [
          ...past.items.map((t) => ({ at: t.timestamp, local: t.local_time, state: t.state, reason: t.reason, dst: t.dst, href: link("ticks", t.tick_id) })).reverse(),
          ...coming.map((t) => ({ at: t.timestamp, local: t.local_time, dst: t.dst })),
        ],
        until: coming.length === ahead.ticks.length && !ahead.exhausted ? coming.at(-1)?.local_time : undefined,
      };
    },
    keep: true,
  });
  const named = s.spec.exclude?.named ?? [];
  const calendars = useQuery({
    key: ["excluded", named],
    fn: (signal) => Promise.all(named.map((calendar) => read("/v1/calendars/{calendar}", { path: { calendar }, signal }))),
    on: named.length > 0,
  });
  const excluded = new Map((s.spec.exclude?.dates ?? []).map((d) => [d, "left out"]));
  for (const c of calendars.data ?? []) for (const d of c.dates ?? []) excluded.set(d, c.name);
  return (
    <Panel>
      <Await of={marks}>
        {(m) => (
          <>
            <Month
              excluded={excluded}
              marks={m.marks}
              until={m.until}
              zone={zone}
              month={month}
              onMonth={(next) => change({ month: next === step(next, 0) ? next : month })}
              onPick={(mark) => route(mark.href ?? `${scheduleLink(name.workflow, name.key)}?tab=explain&at=${encodeURIComponent(mark.at)}`)}
            />
            <p class="dim">
              ○ to come · {shapes.succeeded} succeeded · {shapes.failed} failed · {shapes.skipped} skipped · {shapes.missed} missed · ◆ the clock changes
              {m.marks.some((x) => x.dst && x.dst !== "none") &&
                `: ${[...new Set(m.marks.filter((x) => x.dst && x.dst !== "none").map((x) => `${x.local.slice(5, 10)}, ${dstWords[x.dst ?? ""]}`))].join("; ")}`}
            </p>
            {m.until && <p class="dim">Only the next 1,000 ticks are shown, until {m.until.slice(0, 10)}.</p>}
          </>
        )}
      </Await>
    </Panel>
  );
}
