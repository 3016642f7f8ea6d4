export interface Cell {
  /** The largest minute of the hour: when it begins, and its ticks. No tick: at is "". */
  at: string;
  ticks: number;
}

export interface Day {
  /** The date in the zone: 2026-11-24. */
  date: string;
  hours: (Cell | null)[];
}

interface Minute {
  at: string;
  ticks: number | string;
}

const quarter = 900_000; // offsets of today are whole quarters of an hour

/**
 * The largest minute of each hour from a time to another, by the days and hours of a clock. offset returns the minutes from UTC of that clock at an
 * instant. An hour outside is null.
 */
export function heat(minutes: Minute[], from: string, to: string, offset: (ms: number) => number): Day[] {
  const days = new Map<string, (Cell | null)[]>();
  const largest = new Map<number, Cell>();
  for (const m of minutes) {
    const of = Math.floor(Date.parse(m.at) / quarter);
    if (Number(m.ticks) > (largest.get(of)?.ticks ?? 0)) largest.set(of, { at: m.at, ticks: Number(m.ticks) });
  }
  for (let q = Math.floor(Date.parse(from) / quarter); q * quarter < Date.parse(to); q++) {
    const local = new Date(q * quarter + offset(q * quarter) * 60_000);
    const date = local.toISOString().slice(0, 10);
    const hours = days.get(date) ?? new Array<Cell | null>(24).fill(null);
    days.set(date, hours);
    const before = hours[local.getUTCHours()] ?? { at: "", ticks: 0 };
    const here = largest.get(q);
    hours[local.getUTCHours()] = here && here.ticks > before.ticks ? here : before;
  }
  return [...days].map(([date, hours]) => ({ date, hours }));
}
