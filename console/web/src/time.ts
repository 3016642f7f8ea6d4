import { effect, signal } from "@preact/signals";
import { type Answer, read } from "./call";
import { now } from "./live";
import { self } from "./session";

/** Which clock the page shows: that of the schedule, the user's, UTC, or a named zone. */
export type ClockChoice = "schedule" | "mine" | "utc" | (string & {});

const saved = () => {
  try {
    return localStorage.getItem("clock") ?? "schedule";
  } catch {
    return "schedule";
  }
};

export const clock = signal<ClockChoice>(saved());

effect(() => {
  try {
    localStorage.setItem("clock", clock.value);
  } catch {
    // a browser without storage forgets the choice
  }
});

/** The zone of the user's machine. Only its name is used: its offsets come from the server. */
export const mine = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

type Zones = Answer<"/v1/zones">;
type Transitions = Answer<"/v1/zones/{timezone}">["transitions"];

/** The zones in force on the server; null until they are read. */
export const zones = signal<Zones | null>(null);

const transitions = signal<Record<string, Transitions>>({});
const asked = new Set<string>();

const year = 366 * 86_400_000;
const date = (ms: number) => new Date(ms).toISOString().slice(0, 19).concat("Z");

/** Reads the zones once. */
export function needZones() {
  if (asked.has("*") || !self.peek()) return;
  asked.add("*");
  read("/v1/zones")
    .then((z) => {
      zones.value = z;
    })
    .catch(() => asked.delete("*"));
}

function need(zone: string) {
  needZones();
  if (asked.has(zone) || !self.peek()) return;
  asked.add(zone);
  read("/v1/zones/{timezone}", { path: { timezone: zone }, query: { from: date(now() - 2 * year), to: date(now() + 6 * year) } as never })
    .then((z) => {
      transitions.value = { ...transitions.value, [zone]: z.transitions };
    })
    .catch(() => undefined); // an unknown zone is shown in UTC
}

export interface Offset {
  minutes: number;
  abbreviation: string;
}

/** Reads an offset such as -05:00 or Z into minutes. */
export function minutesOf(offset: string): number {
  const m = /^([+-])(\d\d):?(\d\d)(?::?(\d\d))?$/.exec(offset);
  return m ? (m[1] === "-" ? -1 : 1) * (Number(m[2]) * 60 + Number(m[3]) + Number(m[4] ?? 0) / 60) : 0;
}

/** Writes minutes as an offset: −05:00. */
export function offsetText(minutes: number): string {
  const abs = Math.abs(minutes);
  return `${minutes < 0 ? "−" : "+"}${two(abs / 60)}:${two(abs % 60)}`;
}

/** Returns the server's offset of a zone at an instant; undefined until it is known. */
export function offsetAt(zone: string, ms: number): Offset | undefined {
  if (zone === "UTC" || zone === "Etc/UTC") return { minutes: 0, abbreviation: "UTC" };
  need(zone);
  const changes = transitions.value[zone];
  const listed = zones.value?.items.find((z) => z.timezone === zone);
  if (!changes || !zones.value) return undefined;
  const next = changes.findIndex((c) => Date.parse(c.at) > ms);
  const before = next < 0 ? changes.at(-1) : changes[next - 1];
  if (before) return { minutes: minutesOf(before.after), abbreviation: before.abbreviation };
  if (next >= 0) return { minutes: minutesOf(changes[next].before), abbreviation: offsetText(minutesOf(changes[next].before)) };
  return listed ? { minutes: minutesOf(listed.offset), abbreviation: listed.abbreviation } : undefined;
}

const two = (n: number) => String(Math.floor(n)).padStart(2, "0");
const days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
export const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const dated = (date: string) => new Date(`${date}T00:00:00Z`);

/** The date of an instant in UTC: 2026-12-25. */
export const dateOf = (ms: number) => new Date(ms).toISOString().slice(0, 10);

/** Moves a date by days. A date has no zone. */
export const addDays = (date: string, by: number) => dateOf(dated(date).getTime() + by * 86_400_000);

/** Writes a date: Fri 25 Dec. What is no date stays as it is. */
export function dayText(date: string): string {
  const d = dated(date);
  return Number.isNaN(d.getTime()) ? date : `${days[d.getUTCDay()]} ${d.getUTCDate()} ${months[d.getUTCMonth()]}`;
}

export interface Shown {
  text: string;
  zone: string;
  offset: string;
  known: boolean;
}

/** Writes an instant in a zone: Mon 23 Nov 08:00 EST. local is the server's own local time of it, if it sent one. */
export function show(at: string, zone: string, o: { local?: string | null; seconds?: boolean; day?: boolean } = {}): Shown {
  const ms = Date.parse(at);
  if (Number.isNaN(ms)) return { text: "–", zone, offset: "", known: false };
  const sent = o.local ? /([+-]\d\d:\d\d(:\d\d)?|Z)$/.exec(o.local) : null;
  const listed = offsetAt(zone, ms);
  const offset = sent ? { minutes: minutesOf(sent[1]), abbreviation: listed?.abbreviation ?? offsetText(minutesOf(sent[1])) } : listed;
  const { minutes, abbreviation } = offset ?? { minutes: 0, abbreviation: "UTC" };
  const t = new Date(ms + minutes * 60_000);
  const other = t.getUTCFullYear() !== new Date(now()).getUTCFullYear();
  const day = `${days[t.getUTCDay()]} ${t.getUTCDate()} ${months[t.getUTCMonth()]}${other ? ` ${t.getUTCFullYear()}` : ""}`;
  const time = `${two(t.getUTCHours())}:${two(t.getUTCMinutes())}${o.seconds || t.getUTCSeconds() ? `:${two(t.getUTCSeconds())}` : ""}`;
  const named = /^[+-]\d/.test(abbreviation) ? offsetText(minutes) : abbreviation;
  return { text: `${o.day === false ? "" : `${day} `}${time} ${named}`, zone, offset: offsetText(minutes), known: offset !== undefined };
}

/** Returns the zone that the clock switch chooses for a time that belongs to a zone, or to none: then it is a system's event. */
export function chosen(zone?: string | null): string {
  const c = clock.value;
  if (c === "utc") return "UTC";
  if (c === "mine") return mine;
  if (c === "schedule") return zone || mine;
  return c;
}

/** The server's wall time in a zone as a value of <input type=datetime-local>: 2026-11-23T08:00. */
export function wall(ms: number, zone: string): string {
  return new Date(ms + (offsetAt(zone, ms)?.minutes ?? 0) * 60_000).toISOString().slice(0, 16);
}

/** The instant of a wall time in a zone, by the server's offsets; "" if it is none. */
export function instantOf(wallTime: string, zone: string): string {
  const asUTC = Date.parse(`${wallTime}Z`);
  if (Number.isNaN(asUTC)) return "";
  const first = asUTC - (offsetAt(zone, asUTC)?.minutes ?? 0) * 60_000;
  return new Date(asUTC - (offsetAt(zone, first)?.minutes ?? 0) * 60_000).toISOString().replace(".000Z", "Z");
}

/** Writes a distance in words: in 4 min, 3 h ago. */
export function relative(ms: number): string {
  const abs = Math.abs(ms);
  const [n, unit] = abs < 60_000 ? [abs / 1000, "s"] : abs < 3_600_000 ? [abs / 60_000, "min"] : abs < 172_800_000 ? [abs / 3_600_000, "h"] : [abs / 86_400_000, "d"];
  if (abs < 1000) return "now";
  const text = `${Math.floor(n)} ${unit}`;
  return ms < 0 ? `${text} ago` : `in ${text}`;
}

/** Writes a duration: 143 ms, 4.2 s, 3 min 12 s. */
export function lasting(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1000)} s`;
  return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`;
}
