import type { components } from "../../api.gen";

type Bucket = Pick<components["schemas"]["SeriesBucket"], "at" | "lateness_ms">;

export interface Lateness {
  /** The bounds of the rows in ms, the largest first; null: above all bounds. */
  bounds: (number | null)[];
  /** Spans of five minutes. Their counts are those of the bounds. */
  columns: { at: string; counts: number[] }[];
}

const span = 300_000;

/** How many ticks were handed out with which lateness, by five minutes. Spans between the first and the last have a column even if they are empty. */
export function lateness(buckets: Bucket[]): Lateness {
  const spans = new Map<number, Map<number | null, number>>();
  const seen = new Set<number | null>();
  for (const b of buckets) {
    const begins = Math.floor(Date.parse(b.at) / span) * span;
    const counts = spans.get(begins) ?? new Map<number | null, number>();
    spans.set(begins, counts);
    for (const [bound, n] of b.lateness_ms.histogram) {
      const limit = bound === null ? null : Number(bound);
      seen.add(limit);
      counts.set(limit, (counts.get(limit) ?? 0) + Number(n));
    }
  }
  const bounds = [...seen].sort((a, b) => (b ?? Number.POSITIVE_INFINITY) - (a ?? Number.POSITIVE_INFINITY));
  const columns = [];
  const all = [...spans.keys()];
  for (let at = Math.min(...all); at <= Math.max(...all); at += span) {
    columns.push({ at: new Date(at).toISOString(), counts: bounds.map((b) => spans.get(at)?.get(b) ?? 0) });
  }
  return { bounds, columns };
}
