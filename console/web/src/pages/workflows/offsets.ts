import type { components } from "../../api.gen";
import { dateOf, minutesOf } from "../../time";

type Group = components["schemas"]["ForecastGroup"];
type Zone = components["schemas"]["Zone"];
type Bucket = components["schemas"]["SeriesBucket"];

export interface Column {
  /** Minutes from UTC. */
  offset: number;
  /** The minute of the UTC day at which it is the local time there. */
  minute: number;
  /** The zones, the one with most schedules first. */
  zones: string[];
  planned: number;
  succeeded: number;
  failed: number;
  skipped: number;
}

interface Placed {
  local: string;
  offset: number;
  zone: string;
  count: number;
}

/** Each group with the local time of its next tick, by the server's offset at that tick. */
function placed(groups: Group[], zones: Zone[]): Placed[] {
  const byName = new Map(zones.map((z) => [z.timezone, z]));
  return groups.flatMap((g) => {
    const z = byName.get(g.timezone ?? "");
    if (!z || !g.next_at) return [];
    const later = z.next_change && Date.parse(g.next_at) >= Date.parse(z.next_change.at);
    const offset = minutesOf(later && z.next_change ? z.next_change.offset : z.offset);
    const local = new Date(Date.parse(g.next_at) + offset * 60_000).toISOString().slice(11, 16);
    return [{ local, offset, zone: z.timezone, count: Number(g.count) }];
  });
}

/** The local times of the schedules' next ticks, the one with most schedules first. */
export function localTimes(groups: Group[], zones: Zone[]): string[] {
  const sums = new Map<string, number>();
  for (const p of placed(groups, zones)) sums.set(p.local, (sums.get(p.local) ?? 0) + p.count);
  return [...sums].sort((a, b) => b[1] - a[1]).map(([t]) => t);
}

/** The length of a bucket of the series, in ms. */
export const QUARTER = 900_000;

/** The offsets at which schedules have the local time, from east to west, with what ended then on the day of a moment, until that moment. */
export function columnsOf(groups: Group[], zones: Zone[], buckets: Bucket[], local: string, moment: number): Column[] {
  const [h, m] = local.split(":").map(Number);
  const byOffset = new Map<number, Placed[]>();
  for (const p of placed(groups, zones)) if (p.local === local) byOffset.set(p.offset, [...(byOffset.get(p.offset) ?? []), p]);
  return [...byOffset]
    .sort((a, b) => b[0] - a[0])
    .map(([offset, list]) => {
      const minute = (((h * 60 + m - offset) % 1440) + 1440) % 1440;
      const begins = Date.parse(`${dateOf(moment)}T00:00:00Z`) + Math.floor((minute * 60_000) / QUARTER) * QUARTER;
      const b = begins < moment ? buckets.find((x) => Date.parse(x.at) === begins) : undefined;
      const zonesOf = [...new Set(list.sort((x, y) => y.count - x.count).map((p) => p.zone))];
      return {
        offset,
        minute,
        zones: zonesOf,
        planned: list.reduce((n, p) => n + p.count, 0),
        succeeded: Number(b?.succeeded ?? 0),
        failed: Number(b?.failed ?? 0),
        skipped: Object.values(b?.skipped ?? {}).reduce((n, v) => n + Number(v), 0),
      };
    });
}
