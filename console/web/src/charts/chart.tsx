import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { Action } from "../parts/basic";
import { useNarrow } from "../parts/table";
import { chosen, offsetAt, show } from "../time";

export interface Line {
  label: string;
  /** A custom property of the style sheet: --succeeded. */
  color: string;
  values: (number | null)[];
  /** "bars" are stacked on the bars before. */
  kind?: "bars" | "line" | "area";
  /** On the right axis, such as milliseconds. */
  right?: boolean;
  dash?: boolean;
  /** Paler: what is to come. */
  pale?: boolean;
  format?: (n: number) => string;
}

interface Props {
  label: string;
  /** Instants. */
  at: string[];
  lines: Line[];
  height?: number;
  zone?: string;
  onPick?: (at: string) => void;
}

const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name);

/** Resolves a custom property to a colour that a canvas takes: light-dark() is only resolved in a property of an element. */
function paint(name: string): string {
  const el = document.createElement("i");
  el.style.color = `var(${name})`;
  document.body.append(el);
  const c = getComputedStyle(el).color || color(name);
  el.remove();
  return c;
}

/** A chart over time. The switch shows its figures as a table, which is the form for screen readers. */
export function Chart(props: Props) {
  const [table, show] = useState(false);
  return (
    <figure class="chart" aria-label={props.label}>
      <div class="legend">
        {props.lines.map((l) => (
          <Legend key={l.label} line={l} />
        ))}
        <Action kind="quiet" onClick={() => show(!table)}>
          {table ? "Chart" : "Table"}
        </Action>
      </div>
      {table ? <Figures {...props} /> : <Plot {...props} />}
    </figure>
  );
}

function Legend({ line }: { line: Line }) {
  return (
    <span>
      <i
        ref={(el) => {
          if (el) el.style.background = `var(${line.color})`;
        }}
      />
      {line.label}
    </span>
  );
}

function Figures({ label, at, lines, zone }: Props) {
  return (
    <div class="scroll rows" tabIndex={0} role="region" aria-label={label}>
      <table>
        <caption class="hidden">{label}</caption>
        <thead>
          <tr>
            <th>time</th>
            {lines.map((l) => (
              <th key={l.label} class="right">
                {l.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {at.map((t, i) => (
            <tr key={t}>
              <td class="nowrap num">{show(t, chosen(zone)).text}</td>
              {lines.map((l) => (
                <td key={l.label} class="right num">
                  {l.values[i] === null || l.values[i] === undefined ? "–" : (l.format ?? String)(l.values[i] as number)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Stacks the bars: each has its own top and those after it. uPlot draws the highest first. */
function stacked(lines: Line[]): (number | null)[][] {
  const sums = lines.map((l) => [...l.values]);
  const bars = lines.map((l, i) => (l.kind === "bars" ? i : -1)).filter((i) => i >= 0);
  for (let n = 1; n < bars.length; n++) {
    sums[bars[n]] = sums[bars[n]].map((v, i) => (v === null ? null : v + (sums[bars[n - 1]][i] ?? 0)));
  }
  return sums;
}

function Plot({ at, lines, height = 200, zone, onPick, label }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const narrow = useNarrow();
  const z = chosen(zone);
  const scheme = `${document.documentElement.dataset.theme} ${matchMedia("(prefers-color-scheme: dark)").matches}`;
  const shape = lines.map((l) => l.label + l.kind + l.color).join() + z + narrow + scheme;
  const sums = stacked(lines);
  const order = lines.map((_, i) => i).sort((a, b) => (lines[a].kind === "bars" && lines[b].kind === "bars" ? b - a : lines[a].kind === "bars" ? -1 : lines[b].kind === "bars" ? 1 : a - b));
  const data = [at.map((t) => Date.parse(t) / 1000), ...order.map((i) => sums[i])] as uPlot.AlignedData;
  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const dim = paint("--dim");
    const axis = { stroke: dim, grid: { stroke: paint("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const shown = (s: number) => show(new Date(s * 1000).toISOString(), z, { day: false }).text.split(" ")[0];
    const u = new uPlot(
      {
        width: el.clientWidth,
        height,
        legend: { show: false },
        cursor: { y: false, points: { show: false }, drag: { x: true, y: false, uni: 20 } },
        padding: [8, narrow ? 4 : 12, 0, 0],
        scales: { x: { time: true }, y: { range: (_u, _min, max) => [0, Math.max(1, max * 1.08)] }, right: { range: (_u, _min, max) => [0, Math.max(1, max * 1.15)] } },
        axes: [
          { ...axis, space: narrow ? 60 : 80, size: 28, values: (_u, splits) => splits.map(shown) },
          { ...axis, size: 46, values: (_u, splits) => splits.map((n) => (n >= 10_000 ? `${n / 1000}k` : String(n))) },
          ...(lines.some((l) => l.right)
            ? [
                {
                  ...axis,
                  side: 1,
                  scale: "right",
                  grid: { show: false },
                  size: 54,
                  values: (_u: uPlot, splits: number[]) => splits.map((n) => lines.find((l) => l.right)?.format?.(n) ?? String(n)),
                } as uPlot.Axis,
              ]
            : []),
        ],
        series: [{}, ...order.map((i) => series(lines[i]))],
        tzDate: (s) => uPlot.tzDate(new Date(s * 1000 + (offsetAt(z, s * 1000)?.minutes ?? 0) * 60_000), "Etc/UTC"),
      },
      data,
      el,
    );
    plot.current = u;
    const pick = () => {
      const i = u.cursor.idx;
      if (onPick && i !== null && i !== undefined && u.select.width === 0) onPick(new Date((u.data[0][i] as number) * 1000).toISOString());
    };
    u.over.addEventListener("click", pick);
    const watch = new ResizeObserver(() => u.setSize({ width: el.clientWidth, height }));
    watch.observe(el);
    return () => {
      watch.disconnect();
      u.destroy();
    };
  }, [shape, height]);
  useEffect(() => plot.current?.setData(data, true));
  return <div class="plot" ref={box} role="img" aria-label={`${label}. The table has its figures.`} />;
}

function series(l: Line): uPlot.Series {
  const c = paint(l.color);
  const base = { label: l.label, scale: l.right ? "right" : "y", stroke: c, points: { show: false }, dash: l.dash ? [5, 4] : undefined, alpha: l.pale ? 0.45 : 1 };
  if (l.kind === "bars") return { ...base, fill: c, width: 0, paths: uPlot.paths.bars?.({ size: [0.86, 100], align: 1 }) };
  return { ...base, width: 1.5, fill: l.kind === "area" ? c.replace("rgb(", "rgba(").replace(")", ", 0.18)") : undefined };
}
