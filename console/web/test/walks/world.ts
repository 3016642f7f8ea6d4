import { type Api, endpoint } from "../fixture";
import { until } from "../until";

/** Zones that never change their clock, by their offset from UTC in hours: at any time it is between 09:00 and 10:00 in one of them. */
const fixed: Record<number, string> = {
  "-11": "Pacific/Pago_Pago",
  "-10": "Pacific/Honolulu",
  "-9": "Pacific/Gambier",
  "-8": "Pacific/Pitcairn",
  "-7": "America/Phoenix",
  "-6": "America/Costa_Rica",
  "-5": "America/Bogota",
  "-4": "America/Puerto_Rico",
  "-3": "America/Sao_Paulo",
  "-2": "America/Noronha",
  "-1": "Atlantic/Cape_Verde",
  "0": "Africa/Abidjan",
  "1": "Africa/Lagos",
  "2": "Africa/Johannesburg",
  "3": "Africa/Nairobi",
  "4": "Asia/Dubai",
  "5": "Asia/Karachi",
  "6": "Asia/Dhaka",
  "7": "Asia/Bangkok",
  "8": "Asia/Singapore",
  "9": "Asia/Tokyo",
  "10": "Australia/Brisbane",
  "11": "Pacific/Guadalcanal",
  "12": "Pacific/Fiji",
};

/** The schedules of morning-report. */
export interface Reports {
  /** Their local time. They just fired in one zone. */
  local: string;
  /** That zone. */
  zone: string;
  /** The moment of these ticks. */
  at: Date;
}

/** What the walks ask about. */
export interface World extends Reports {
  /** The place whose 08:00 has more ticks than the quota lets through. It is hours away. */
  herd: string;
}

const herd = 1200;

/** Places with the hour of UTC at which it is about 08:00 there. The last two are half an hour off. */
const places = [
  { zone: "America/New_York", name: "New York", hour: 12, half: false },
  { zone: "Asia/Tokyo", name: "Tokyo", hour: 23, half: false },
  { zone: "America/St_Johns", name: "St Johns", hour: 11, half: true },
  { zone: "Asia/Kolkata", name: "Kolkata", hour: 2, half: true },
];

/**
 * A place whose 08:00 is at least three hours away. The reports fire at the minute of `soon` of each hour:
 * the ticks of 08:00 take four minutes, and no report falls into these.
 */
function crowdedPlace(soon: Date) {
  const nearFullHour = (soon.getUTCMinutes() + 15) % 60 < 30;
  const found = places.find((place) => place.half === nearFullHour && (place.hour - soon.getUTCHours() + 24) % 24 >= 3 && (soon.getUTCHours() - place.hour + 24) % 24 >= 2);
  if (!found) throw new Error(`no place has its 08:00 hours away from ${soon.toISOString()}`);
  return found;
}

/** The zone in which it is now this hour of the day. */
const zoneAt = (hour: number, at: Date) => fixed[((hour - at.getUTCHours() + 35) % 24) - 11];

const dayOf = (at: Date) => at.toISOString().slice(0, 10);

/** The next minute that leaves the time to store what fires then. */
const nextMinute = () => new Date(Math.ceil((Date.now() + 25_000) / 60_000) * 60_000);

const tick = (api: Api, which: string) => until(async () => ((await api.get(`/v1/ticks?limit=1&${which}`)) as { items: unknown[] }).items.length > 0, 150_000, `a tick with ${which}`);

/** Waits until the ticks of the world have ended. */
export async function endedWorld(api: Api, made: World): Promise<World> {
  await tick(api, "workflow=reminders&subject=user_123");
  return { ...made, ...(await endedReports(api, made)) };
}

/** Waits until reports of this day of UTC have ended: the wave shows no other day. If another day has begun, they come again. */
export async function endedReports(api: Api, made: Reports): Promise<Reports> {
  const reports = dayOf(made.at) >= dayOf(new Date()) ? made : await makeReports(api, nextMinute());
  await tick(api, `workflow=morning-report&state=succeeded&from=${reports.at.toISOString()}`);
  return reports;
}

/** Stores a tenant in which each question of the walks has an answer. Its ticks come within two minutes. */
export async function makeWorld(api: Api): Promise<World> {
  const port = await endpoint();
  await api.put("/v1/endpoints/mailer", { url: `http://127.0.0.1:${port}/ok` });
  for (const workflow of ["daily-digest", "morning-report", "reminders", "billing"]) await api.put(`/v1/workflows/${workflow}`, { endpoint: "mailer" });
  const soon = nextMinute();
  const crowded = crowdedPlace(soon);
  const lines: unknown[] = [];
  for (let i = 0; i < herd; i++) {
    lines.push({ workflow: "daily-digest", key: `user_${2000 + i}`, spec: { timezone: crowded.zone, cron: ["0 8 * * *"] }, labels: { plan: i % 3 ? "free" : "pro" } });
  }
  for (let i = 0; i < 60; i++) lines.push({ workflow: "billing", key: `nightly_${i}`, spec: { timezone: i % 3 ? "America/New_York" : "Europe/Berlin", cron: ["30 2 * * *"] } });
  await bulk(api, lines);
  await theUser(api, soon);
  await api.put("/v1/subjects/user_777", { timezone: "Europe/Berlin" });
  for (const workflow of ["daily-digest", "reminders"]) await api.put(`/v1/workflows/${workflow}/schedules/user_777`, { subject: "user_777", spec: { timezone: "@subject", cron: ["0 8 * * *"] } });
  return { ...(await makeReports(api, soon)), herd: crowded.name };
}

/** Stores reports at one local time around the Earth. In no zone does the clock change, because a change moves a zone to another column. */
async function makeReports(api: Api, soon: Date): Promise<Reports> {
  const minute = soon.getUTCMinutes();
  const lines = [...Object.values(fixed), "Asia/Kolkata", "Asia/Kathmandu"].flatMap((timezone, n) =>
    Array.from({ length: 4 + ((n * 7) % 23) }, (_, i) => ({ workflow: "morning-report", key: `team_${n}_${i}`, spec: { timezone, cron: [`${minute} 9 * * *`] } })),
  );
  await bulk(api, lines);
  return { local: `09:${String(minute).padStart(2, "0")}`, zone: zoneAt(9, soon), at: soon };
}

/** user_123, in whose zone it is noon: its reminders fall into its quiet hours, its bills are paused, and its digest was moved to 09:00. */
async function theUser(api: Api, soon: Date) {
  await api.put("/v1/subjects/user_123", { timezone: zoneAt(12, soon), quiet_hours: { from: "11:00", to: "16:00", then: "skip" } });
  const at = (workflow: string) => `/v1/workflows/${workflow}/schedules/user_123`;
  const minutes = `${soon.getUTCMinutes()} 12 * * *`;
  await api.put(at("reminders"), { subject: "user_123", spec: { timezone: "@subject", cron: [minutes] }, payload: { say: "drink water" } });
  await api.put(at("billing"), { subject: "user_123", spec: { timezone: "@subject", cron: [minutes] } });
  await api.post(`${at("billing")}/pause`, { note: "Their card is being replaced." });
  for (const hour of [8, 9]) {
    await api.put(at("daily-digest"), {
      subject: "user_123",
      spec: { timezone: "America/New_York", cron: [`0 ${hour} * * 1-5`] },
      payload: { template: "digest", to: "ada@example.com", amount: 12.5 },
    });
  }
}

async function bulk(api: Api, lines: unknown[]) {
  const answer = await fetch(`${api.ready.url}/v1/schedules/bulk?results=errors`, {
    method: "POST",
    headers: { Authorization: `Bearer ${api.ready.token}`, "Content-Type": "application/x-ndjson" },
    body: lines.map((l) => JSON.stringify(l)).join("\n"),
  });
  const text = await answer.text();
  if (!text.includes('"errors":0') && !text.includes('"errors": 0')) throw new Error(`bulk: ${answer.status} ${text.slice(0, 500)}`);
}
