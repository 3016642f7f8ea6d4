import { useState } from "preact/hooks";
import { type Answer, read } from "../../call";
import { Chart, type Line } from "../../charts/chart";
import { Await, Empty, Figure, Head, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { type Filter, Filters } from "../../parts/filters";
import { type Column, Table } from "../../parts/table";
import { useQuery } from "../../query";
import { lasting } from "../../time";
import { useParams } from "../../url";
import { longest, queue, spread } from "./backlog";
import { Minute } from "./minute";
import { Week } from "./week";
import "./style.css";

type Forecast = Answer<"/v1/admin/forecast">;
type Peak = Forecast["peaks"][number];

const filters: Filter[] = [
  { name: "workflow", label: "workflow", always: true },
  { name: "hours", label: "hours", always: true, values: ["24", "168"] },
];

const peakColumns = (pick: (at: string) => void): Column<Peak>[] => [
  { head: "minute", width: "minmax(190px, 1.2fr)", cell: (p) => <Clock at={p.at} /> },
  { head: "ticks", width: "minmax(80px, 1fr)", cell: (p) => <Figure of={p.ticks} /> },
  {
    head: "drained",
    width: "minmax(190px, 1.2fr)",
    cell: (p) => (p.drained_at ? <Clock at={p.drained_at} seconds /> : <span class="overdue">after the forecast</span>),
  },
  { head: "longest wait", width: "minmax(100px, 1fr)", cell: (p) => (p.drained_at ? lasting(Date.parse(p.drained_at) - Date.parse(p.at)) : <span class="dim">–</span>) },
  { head: "jitter so that none waits", width: "minmax(200px, 1fr)", cell: (p) => <code>{p.jitter}</code> },
  {
    head: "content",
    width: "90px",
    cell: (p) => (
      <button type="button" class="button quiet" onClick={() => pick(p.at)}>
        Show
      </button>
    ),
  },
];

/** What is due in the coming hours, against the quota, and what would change it. */
export default function ForecastPage() {
  const [query, change] = useParams();
  const hours = query.hours === "168" ? 168 : 24;
  const workflow = query.workflow || undefined;
  const forecast = useQuery({
    key: ["forecast", hours, workflow],
    fn: (signal) => read("/v1/admin/forecast", { query: { hours, workflow }, signal }),
    every: 60_000,
    keep: true,
  });
  return (
    <div class="stack">
      <Head title="Forecast" sub="Ticks due in each coming minute, against the quota" />
      <Filters of={filters} />
      <Await of={forecast}>
        {(f) =>
          Number(f.ticks) === 0 ? (
            <Panel>
              <Empty title="No tick is due" cli="carillon admin forecast --hours 24">
                A curve appears here as soon as an active schedule has a time in these hours.
              </Empty>
            </Panel>
          ) : (
            <Parts of={f} pick={(at) => change({ at })} />
          )
        }
      </Await>
      <Week workflow={workflow} pick={(at) => change({ at })} />
      {query.at && <Minute at={query.at} workflow={workflow} jitter={forecast.data?.peaks.find((p) => p.at === query.at)?.jitter} />}
    </div>
  );
}

function Parts({ of: f, pick }: { of: Forecast; pick: (at: string) => void }) {
  const [quota, setQuota] = useState(Number(f.ticks_per_second));
  const [jitter, setJitter] = useState(0);
  const first = Date.parse(f.minutes[0]?.at ?? f.from);
  const count = Math.max(1, Math.ceil((Date.parse(f.to) - first) / 60_000));
  const due = new Array<number>(count).fill(0);
  for (const m of f.minutes) due[Math.floor((Date.parse(m.at) - first) / 60_000)] = Number(m.ticks);
  const at = due.map((_, i) => new Date(first + i * 60_000).toISOString().replace(".000Z", "Z"));
  const shaped = spread(due, jitter);
  const waiting = queue(shaped, quota);
  const limit = quota * 60;
  const top = Math.max(...shaped);
  const lines: Line[] = [
    { label: "due", color: "--running", kind: "area", values: shaped },
    { label: "waiting at the end of the minute", color: "--missed", kind: "line", values: waiting },
  ];
  if (top * 4 > limit) lines.push({ label: "quota", color: "--failed", kind: "line", dash: true, values: due.map(() => limit) });
  const wait = longest(waiting, quota);
  return (
    <>
      <Panel title={`${Number(f.ticks).toLocaleString("en")} ticks`} tools={f.truncated && <span class="dim">estimated: there are too many timings to compute each</span>}>
        <Chart label="Ticks due a minute, and the backlog" at={at} lines={lines} onPick={pick} />
      </Panel>
      <Panel title="Try">
        <div class="try">
          <label>
            <span>
              quota: <strong class="num">{quota.toLocaleString("en")}</strong> ticks a second
            </span>
            <input type="range" min="1" max={Math.max(10, Number(f.ticks_per_second) * 2)} value={quota} onInput={(e) => setQuota(Number(e.currentTarget.value))} />
          </label>
          <label>
            <span>
              jitter of all: <strong class="num">{jitter}</strong> min
            </span>
            <input type="range" min="0" max="60" value={jitter} onInput={(e) => setJitter(Number(e.currentTarget.value))} />
          </label>
        </div>
        <p role="status">
          {wait === 0 ? "No tick waits for the quota." : `Ticks wait for up to ${lasting(wait)}.`} The largest minute has {Math.round(top).toLocaleString("en")} ticks; the quota lets{" "}
          {limit.toLocaleString("en")} through.
        </p>
        <p class="dim">This only shows the effect. To spread schedules, show the content of a minute.</p>
      </Panel>
      <Panel bare title="Peaks above the quota of today">
        <Table label="Peaks" columns={peakColumns(pick)} rows={f.peaks} id={(p) => p.at} empty={<p class="skeleton">No minute has more ticks than the quota lets through.</p>} />
      </Panel>
    </>
  );
}
