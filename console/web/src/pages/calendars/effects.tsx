import type { components } from "../../api.gen";
import { call, read } from "../../call";
import { now } from "../../live";
import { Await, Name } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import type { Summary } from "../../parts/schedules";
import { useQuery } from "../../query";
import { addDays, dateOf } from "../../time";
import { scheduleLink } from "../../url";

type Tick = components["schemas"]["UpcomingTick"];

interface Effect {
  schedule: Summary;
  gone: Tick[];
  come: Tick[];
}

const shown = 5; // timings that are previewed
const reach = 366; // days beyond the changed ones to which `then` can move a tick

/** The ticks of a schedule as it is, and as it would be by the days after the change. The server computes both. */
async function effect(schedule: Summary, name: string, after: string[], days: string[], signal: AbortSignal): Promise<Effect> {
  const span = { from: `${addDays(days[0], -7)}T00:00:00Z`, until: `${addDays(days[days.length - 1], 8)}T00:00:00Z`, count: 1000 };
  const { spec, workflow, key, subject } = schedule;
  const near = after.filter((d) => d >= addDays(days[0], -reach) && d <= addDays(days[days.length - 1], reach));
  const exclude = { ...spec.exclude, named: (spec.exclude?.named ?? []).filter((n) => n !== name), dates: [...new Set([...(spec.exclude?.dates ?? []), ...near])] };
  const [was, is] = await Promise.all(
    [spec, { ...spec, exclude }].map(async (s) => (await call("post", "/v1/schedules/preview", { body: { spec: s, workflow, key, subject, ...span } as never, signal })).value.ticks),
  );
  const without = (ticks: Tick[], others: Tick[]) => {
    const times = new Set(others.map((t) => t.timestamp));
    return ticks.filter((t) => !times.has(t.timestamp));
  };
  return { schedule, gone: without(was, is), come: without(is, was) };
}

/** What a change of a calendar does to the schedules that name it: one of each timing, among the first ones. */
export function Effects({ name, after, added, removed }: { name: string; after: string[]; added: string[]; removed: string[] }) {
  const today = dateOf(now());
  const days = [...added, ...removed].filter((d) => d >= today).sort();
  const got = useQuery({
    key: ["calendar-effects", name, after, days],
    fn: async (signal) => {
      const page = await read("/v1/schedules", { query: { calendar: name, fields: "summary", limit: 200 } as never, signal });
      const items = page.items as unknown as Summary[];
      const active = items.filter((s) => s.status === "active");
      const timings = [...new Map(active.map((s) => [`${s.workflow} ${s.reading} ${s.timezone_in_force}`, s])).values()];
      const effects = days.length ? await Promise.all(timings.slice(0, shown).map((s) => effect(s, name, after, days, signal))) : [];
      return { active: active.length, more: page.next_cursor !== null, timings: timings.length, effects };
    },
    keep: true,
  });
  return (
    <div class="stack">
      <h3>What it does</h3>
      <Await of={got}>
        {({ active, more, timings, effects }) => (
          <>
            <p>
              {active === 0 && !more
                ? "No active schedule names the calendar: nothing is retimed."
                : days.length === 0
                  ? "All days that change have passed: no coming tick moves."
                  : `${active.toLocaleString("en")}${more ? " or more" : ""} active schedules name the calendar, with ${timings.toLocaleString("en")}${more ? " or more" : ""} timings. They fire by the new days from the moment you save.`}
            </p>
            <ul class="effects">
              {effects.map((e) => (
                <li key={e.schedule.id}>
                  <a href={scheduleLink(e.schedule.workflow, e.schedule.key)}>
                    {e.schedule.workflow} / <Name>{e.schedule.key}</Name>
                  </a>{" "}
                  <span class="dim">{e.schedule.reading}</span>
                  <Ticks word="No longer" of={e.gone} zone={e.schedule.timezone_in_force} />
                  <Ticks word="New" of={e.come} zone={e.schedule.timezone_in_force} />
                  {e.gone.length + e.come.length === 0 && <div class="dim">No tick of it moves.</div>}
                </li>
              ))}
            </ul>
            {timings > shown && <p class="dim">The other {timings - shown} timings are not shown.</p>}
          </>
        )}
      </Await>
    </div>
  );
}

function Ticks({ word, of, zone }: { word: string; of: Tick[]; zone: string }) {
  if (of.length === 0) return null;
  return (
    <div>
      {word}:{" "}
      {of.slice(0, 4).map((t, i) => (
        <span key={t.timestamp}>
          {i > 0 && ", "}
          <Clock at={t.timestamp} zone={zone} local={t.local_time} dst={t.dst} />
        </span>
      ))}
      {of.length > 4 && `, … and ${of.length - 4} more`}
    </div>
  );
}
