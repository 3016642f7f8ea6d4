import { useLocation } from "preact-iso";
import { type Answer, read } from "../../call";
import { Chart, type Line } from "../../charts/chart";
import { POLL, useQuery } from "../../query";
import { lasting } from "../../time";
import { link } from "../../url";
import { minute, outcomesOf } from "./words";

interface Props {
  series?: Answer<"/v1/admin/series">;
  /** Ticks a second; null: no limit is known. */
  quota: number | null;
}

/** Three hours of outcomes, and behind now an hour of forecast. */
export default function Load({ series, quota }: Props) {
  const { route } = useLocation();
  const forecast = useQuery({ key: ["forecast", 1], fn: (signal) => read("/v1/admin/forecast", { query: { hours: 1 }, signal }), every: 12 * POLL });
  if (!series) return <p class="skeleton">Reading…</p>;
  const from = Date.parse(series.from);
  const last = Date.parse(series.buckets.at(-1)?.at ?? series.from);
  const at: string[] = [];
  for (let t = from; t <= last + 3_600_000; t += 60_000) at.push(minute(t));
  const buckets = new Map(series.buckets.map((b) => [minute(Date.parse(b.at)), b]));
  const ahead = new Map((forecast.data?.minutes ?? []).map((m) => [minute(Date.parse(m.at)), m.ticks]));
  const past = (t: string) => Date.parse(t) <= last;
  const bars = (["succeeded", "failed", "skipped", "missed", "cancelled"] as const).map(
    (name): Line => ({
      label: name,
      color: `--${name}`,
      kind: "bars",
      values: at.map((t) => {
        const b = buckets.get(t);
        return past(t) ? (b ? (outcomesOf(b)[name] ?? 0) : 0) : 0;
      }),
    }),
  );
  const shown = bars.filter((l) => l.label === "succeeded" || l.values.some((v) => v));
  const due = at.map((t) => (past(t) ? null : (ahead.get(t) ?? 0)));
  const most = Math.max(...at.map((_, i) => shown.reduce((sum, l) => sum + (l.values[i] ?? 0), 0)), ...due.map((n) => n ?? 0));
  const lines: Line[] = [
    ...shown,
    { label: "due by the forecast", color: "--waiting", kind: "area", dash: true, values: due },
    { label: "99 % of lateness", color: "--late", kind: "line", right: true, values: at.map((t) => (past(t) ? (buckets.get(t)?.lateness_ms.p99 ?? null) : null)), format: lasting },
  ];
  if (quota !== null && most * 4 > quota * 60) lines.push({ label: "quota", color: "--failed", kind: "line", dash: true, values: at.map(() => quota * 60) });
  return (
    <Chart
      label="Ticks a minute by outcome, three hours back and one ahead"
      at={at}
      lines={lines}
      onPick={(t) => route(past(t) ? `${link("ticks")}?from=${t}&to=${minute(Date.parse(t) + 60_000)}` : `${link("forecast")}?at=${t}`)}
    />
  );
}
