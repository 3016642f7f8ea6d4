import { useState } from "preact/hooks";
import { read } from "../../call";
import { now } from "../../live";
import { Action, Await, many, Panel } from "../../parts/basic";
import { POLL, useQuery } from "../../query";
import { dateOf, dayText, offsetText } from "../../time";
import { link, useParams } from "../../url";
import { type Column, columnsOf, localTimes, QUARTER } from "./offsets";
import "./style.css";

const width = 960;
const height = 250;
const top = 70; // for labels that move up
const label = { width: 37, height: 27 };
const clockOf = (minute: number) => `${String(Math.floor(minute / 60)).padStart(2, "0")}:${String(minute % 60).padStart(2, "0")}`;
const of = (workflow: string, zone: string) => `${link("schedules")}?${new URLSearchParams({ workflow, timezone: zone })}`;
const words = (c: Column) =>
  `UTC${offsetText(c.offset)}, ${c.zones.slice(0, 2).join(", ")}${c.zones.length > 2 ? `, ${c.zones.length - 2} more` : ""}: ${many(c.planned)} planned at ${clockOf(c.minute)} UTC, ${many(c.succeeded)} succeeded, ${many(c.failed)} failed, ${many(c.skipped)} skipped`;

/** How many quarters of an hour the slider goes back. */
const quarters = 96;

/** How one local time of the schedules goes round the Earth: a column for each offset from UTC, now or at a moment of the last 24 hours. */
export function Wave({ workflow }: { workflow: string }) {
  const [query, change] = useParams();
  const [table, show] = useState(false);
  const [back, goBack] = useState(0);
  const moment = back === 0 ? now() : Math.floor(now() / QUARTER - back + 1) * QUARTER;
  const yesterday = dateOf(now() - quarters * QUARTER);
  const all = useQuery({
    key: ["wave", workflow, yesterday],
    fn: async (signal) => {
      const [forecast, zones, series] = await Promise.all([
        read("/v1/admin/forecast", { query: { workflow, group: "workflow,timezone,timing" }, signal }),
        read("/v1/zones", { signal }),
        read("/v1/admin/series", { query: { workflow, from: `${yesterday}T00:00:00Z`, step: "15m" }, signal }),
      ]);
      return { forecast, zones, series };
    },
    every: 6 * POLL,
  });
  const times = all.data ? localTimes(all.data.forecast.groups ?? [], all.data.zones.items) : [];
  const local = times.includes(query.local) ? query.local : times[0];
  return (
    <Panel
      title="One local time around the Earth"
      tools={
        <>
          {times.length > 0 && (
            <select class="select" aria-label="Local time" value={local} onChange={(e) => change({ local: e.currentTarget.value })}>
              {times.map((t) => (
                <option key={t}>{t}</option>
              ))}
            </select>
          )}
          <Action kind="quiet" onClick={() => show(!table)}>
            {table ? "Chart" : "Table"}
          </Action>
        </>
      }
    >
      <Await of={all}>
        {({ forecast, zones, series }) => {
          if (!local) return <p class="dim">No active schedule of it has a next tick.</p>;
          const columns = columnsOf(forecast.groups ?? [], zones.items, series.buckets, local, moment);
          return (
            <>
              {table ? <Figures workflow={workflow} of={columns} /> : <Picture workflow={workflow} of={columns} moment={moment} />}
              <Replay moment={moment} back={back} goBack={goBack} />
              <p class="dim">
                The outline is the number of active schedules whose next tick is at {local} local time. It is filled by what ended on that day in the quarter of an hour that begins then, whatever its
                local time was. Offsets are the server's, tzdata {zones.tzdata}.{forecast.truncated && " Only the 200 largest groups are counted."}
              </p>
            </>
          );
        }}
      </Await>
    </Panel>
  );
}

/** Chooses the moment that the wave shows. */
function Replay({ moment, back, goBack }: { moment: number; back: number; goBack: (quarters: number) => void }) {
  const text = back === 0 ? "now" : `${dayText(dateOf(moment))} ${new Date(moment).toISOString().slice(11, 16)} UTC`;
  return (
    <label class="replay">
      <span>
        Shown: <strong>{text}</strong>
      </span>
      <input type="range" min={-quarters} max={0} value={-back} aria-valuetext={text} onInput={(e) => goBack(-Number(e.currentTarget.value))} />
    </label>
  );
}

interface Bar {
  of: Column;
  x: number;
  width: number;
  /** The upper edge of its label. */
  label: number;
}

/** Where the columns are. Offsets that differ by minutes have narrower bars, and a label moves up until it covers no other. */
function placedBars(columns: Column[], x: (minute: number) => number, tall: (n: number) => number, base: number): Bar[] {
  const inOrder = columns.toSorted((a, b) => a.minute - b.minute);
  const bars: Bar[] = [];
  for (const [i, c] of inOrder.entries()) {
    const next = inOrder[i + 1];
    const wide = Math.max(5, Math.min(22, next ? x(next.minute) - x(c.minute) - 2 : 22));
    let y = base - tall(Math.max(c.planned, ended(c))) - label.height - 2;
    const middle = x(c.minute) + wide / 2;
    const near = bars.filter((b) => Math.abs(b.x + b.width / 2 - middle) < label.width);
    while (near.some((b) => Math.abs(b.label - y) < label.height)) y = Math.min(...near.map((b) => b.label).filter((n) => Math.abs(n - y) < label.height)) - label.height;
    bars.push({ of: c, x: x(c.minute), width: wide, label: y });
  }
  return bars;
}

const ended = (c: Column) => c.succeeded + c.failed + c.skipped;

function Picture({ workflow, of: columns, moment }: { workflow: string; of: Column[]; moment: number }) {
  const most = Math.max(1, ...columns.map((c) => Math.max(c.planned, ended(c))));
  const base = height - 24;
  const x = (minute: number) => 20 + (minute / 1440) * (width - 60);
  const tall = (n: number) => (n / most) * (base - top - label.height);
  const at = (moment % 86_400_000) / 60_000;
  const bars = placedBars(columns, x, tall, base);
  return (
    <div class="scroll" role="region" aria-label="The wave" tabIndex={0}>
      <svg class="wave" viewBox={`0 0 ${width} ${height}`} role="group" aria-label="24 hours of UTC. The table has the figures.">
        <line x1={20} x2={width - 16} y1={base} y2={base} />
        {[0, 6, 12, 18, 24].map((h) => (
          <text key={h} x={x(h * 60)} y={height - 6} text-anchor="middle">
            {clockOf(h * 60)}
          </text>
        ))}
        <line class="now" x1={x(at)} x2={x(at)} y1={0} y2={base} />
        <text x={x(at) + 4} y={10} class="now">
          {moment > now() - 1000 ? "now" : clockOf(Math.floor(at))}
        </text>
        {bars.map(({ of: c, x, width }) => (
          <a key={c.offset} href={of(workflow, c.zones[0])} aria-label={words(c)}>
            <title>{words(c)}</title>
            <rect class="hit" x={x - 1} y={0} width={width + 2} height={base} />
            <rect class="planned" x={x} y={base - tall(c.planned)} width={width} height={tall(c.planned)} />
            <rect class="succeeded" x={x} y={base - tall(c.succeeded)} width={width} height={tall(c.succeeded)} />
            <rect class="failed" x={x} y={base - tall(c.succeeded + c.failed)} width={width} height={tall(c.failed)} />
            <rect class="skipped" x={x} y={base - tall(ended(c))} width={width} height={tall(c.skipped)} />
          </a>
        ))}
        {bars.map(({ of: c, x, width, label: y }) => (
          <g key={c.offset}>
            <text x={x + width / 2} y={y + 11} text-anchor="middle">
              {offsetText(c.offset)}
            </text>
            <text x={x + width / 2} y={y + 23} text-anchor="middle">
              {many(c.planned)}
            </text>
          </g>
        ))}
      </svg>
    </div>
  );
}

function Figures({ workflow, of: columns }: { workflow: string; of: Column[] }) {
  return (
    <div class="scroll" role="region" aria-label="Figures of the wave" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {["offset", "at (UTC)", "planned", "succeeded", "failed", "skipped", "zones"].map((h) => (
              <th key={h}>{h}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {columns.map((c) => (
            <tr key={c.offset}>
              <td class="num">{offsetText(c.offset)}</td>
              <td class="num">{clockOf(c.minute)}</td>
              {[c.planned, c.succeeded, c.failed, c.skipped].map((n, i) => (
                <td class="num" key={i}>
                  {many(n)}
                </td>
              ))}
              <td>
                {c.zones.map((z) => (
                  <span key={z}>
                    <a href={of(workflow, z)}>{z}</a>{" "}
                  </span>
                ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
