import type { components } from "../../api.gen";
import { read } from "../../call";
import { Await, Empty, Head, Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { SaveCsv } from "../../parts/csv";
import { type Filter, Filters } from "../../parts/filters";
import { useQuery } from "../../query";
import { show } from "../../time";
import { link, scheduleLink, useParams } from "../../url";
import "./style.css";

type Change = components["schemas"]["ClockChange"];
type Effect = components["schemas"]["ClockEffect"];

const filters: Filter[] = [
  { name: "workflow", label: "workflow", always: true },
  { name: "from", label: "from", type: "date", always: true },
  { name: "to", label: "to", type: "date", always: true },
  { name: "zone", label: "zone contains", always: true, hint: "york" },
];

const midnight = (day?: string) => (day ? `${day}T00:00:00Z` : undefined);
const time = (local: string) => local.slice(11, local.endsWith(":00") ? 16 : 19);
const dayOf = (local: string) => show(`${local.slice(0, 10)}T00:00:00Z`, "UTC").text.replace(/ 00:00 UTC$/, "");
const several = (n: number) => `${n.toLocaleString("en")} ${n === 1 ? "schedule" : "schedules"}`;

/** What coming changes of the clock do to the schedules. */
export default function ClockChanges() {
  const [query] = useParams();
  const asked = { from: midnight(query.from), to: midnight(query.to), workflow: query.workflow || undefined };
  const report = useQuery({ key: ["dst", asked], fn: (signal) => read("/v1/admin/dst", { query: asked as never, signal }), keep: true });
  const text = (query.zone ?? "").toLowerCase().replaceAll(" ", "_");
  const changes = (report.data?.changes ?? []).filter((c) => c.timezones.some((z) => z.toLowerCase().includes(text)));
  return (
    <div class="stack">
      <Head title="Clock changes" sub="What they do to the active schedules, before it happens">
        <SaveCsv rows={rowsOf(changes)} file="clock-changes.csv" />
      </Head>
      <Filters of={filters} />
      <Await of={report}>
        {(r) => (
          <>
            {r.truncated && <p class="note">There are too many timings to compute each: some stand for others, so the numbers are estimates.</p>}
            <Panel title={query.from || query.to ? "In this time" : "In the next 12 months"}>
              {changes.length === 0 ? (
                <Empty title="No clock changes" cli="carillon forecast">
                  In this time, no clock is set forward or back in a zone that active schedules use.
                </Empty>
              ) : (
                <ol class="clock-changes">
                  {changes.map((c) => (
                    <One key={`${c.at} ${c.timezones[0]} ${c.kind}`} of={c} />
                  ))}
                </ol>
              )}
            </Panel>
          </>
        )}
      </Await>
    </div>
  );
}

/** One change in sentences: when, where, from which time to which, and what becomes of the schedules. */
function One({ of: c }: { of: Change }) {
  const rest = c.timezones.slice(1);
  const untouched = Number(c.schedules) === 0;
  return (
    <li class={untouched ? "dim" : undefined}>
      <p>
        <strong>{dayOf(c.from_local)}</strong>, <Zone name={c.timezones[0]} />
        {rest.length > 0 && (
          <>
            {" and "}
            <details class="more-zones">
              <summary>{rest.length} more</summary>
              {rest.map((z) => (
                <Zone key={z} name={z} />
              ))}
            </details>
          </>
        )}
        : the clock is set {c.kind === "gap" ? "forward" : "back"}, <strong class="num nowrap">{`${time(c.from_local)} → ${time(c.to_local)}`}</strong>{" "}
        <span class="dim">
          (<Clock at={c.at} zone={c.timezones[0]} relative />)
        </span>
      </p>
      {untouched ? (
        <p>No schedule has a time that it {c.kind === "gap" ? "skips" : "repeats"}.</p>
      ) : (
        <ul>
          {c.effects.map((e) => (
            <li key={e.effect}>
              <strong>{several(Number(e.count))}</strong> {Number(e.count) === 1 ? "has" : "have"} a time that the clock {c.kind === "gap" ? "skips" : "shows twice"}
              {e.sample[0] && <span class="num">, such as {time(e.sample[0].local_time)}</span>}: <strong>{becomes(c, e)}</strong>.{" "}
              <span class="samples">
                {e.sample.map((s) => (
                  <a key={`${s.workflow}/${s.key}`} href={scheduleLink(s.workflow, s.key)}>
                    <Name>
                      {s.workflow}/{s.key}
                    </Name>
                  </a>
                ))}
              </span>
            </li>
          ))}
        </ul>
      )}
    </li>
  );
}

const Zone = ({ name }: { name: string }) => <a href={`${link("schedules")}?${new URLSearchParams({ timezone: name })}`}>{name}</a>;

/** What the schedules do by their policy. */
function becomes(c: Change, e: Effect): string {
  const local = e.sample[0]?.local_time;
  switch (e.effect) {
    case "shifted":
      return local ? `it becomes ${time(later(local, c))} (moved on as far as the clock)` : "they fire as much later as the clock moves";
    case "next_valid":
      return `they fire at ${time(c.to_local)}, the first time after the gap`;
    case "skipped":
      return "they do not fire";
    case "once_first":
      return "they fire once, at the first";
    case "once_last":
      return "they fire once, at the second";
    default:
      return "they fire twice";
  }
}

/** A wall time that the clock skips, moved on by the length of the gap. */
function later(local: string, c: Change): string {
  const gap = Date.parse(`${c.to_local}Z`) - Date.parse(`${c.from_local}Z`);
  return new Date(Date.parse(`${local}Z`) + gap).toISOString().slice(0, 19);
}

function rowsOf(changes: Change[]): unknown[][] {
  const head = ["at", "kind", "from_local", "to_local", "timezones", "effect", "schedules", "samples"];
  const rows = changes.flatMap((c) => {
    const first = [c.at, c.kind, c.from_local, c.to_local, c.timezones.join(" ")];
    if (c.effects.length === 0) return [[...first, "", 0, ""]];
    return c.effects.map((e) => [...first, e.effect, Number(e.count), e.sample.map((s) => `${s.workflow}/${s.key}`).join(" ")]);
  });
  return [head, ...rows];
}
