import { useState } from "preact/hooks";
import { read } from "../../call";
import "../../charts/heat.css";
import { shade } from "../../charts/shade";
import { Action, Await, many, Panel } from "../../parts/basic";
import { useQuery } from "../../query";
import { chosen, dayText, offsetAt } from "../../time";
import { type Cell, type Day, heat } from "./heat";

const hours = Array.from({ length: 24 }, (_, h) => h);
const two = (n: number) => String(n).padStart(2, "0");

/** The largest minute of each hour of the coming week: where schedules crowd, and where there is room. */
export function Week({ workflow, pick }: { workflow?: string; pick: (at: string) => void }) {
  const [table, show] = useState(false);
  const zone = chosen();
  const forecast = useQuery({
    key: ["forecast", 168, workflow],
    fn: (signal) => read("/v1/admin/forecast", { query: { hours: 168, workflow }, signal }),
    every: 300_000,
    keep: true,
  });
  return (
    <Panel
      title="The largest minute of each hour, for a week"
      tools={
        <>
          <span class="dim">{zone}</span>
          <Action kind="quiet" label={table ? "Show the hours as shades" : "Show the hours as a table"} onClick={() => show(!table)}>
            {table ? "Shades" : "Table"}
          </Action>
        </>
      }
    >
      <Await of={forecast}>
        {(f) => {
          if (Number(f.ticks) === 0) return <p class="dim">No tick is due in the coming week.</p>;
          const days = heat(f.minutes, f.from, f.to, (ms) => offsetAt(zone, ms)?.minutes ?? 0);
          const top = Math.max(1, ...days.flatMap((d) => d.hours.map((c) => c?.ticks ?? 0)));
          return (
            <>
              <Hours days={days} top={top} table={table} pick={pick} />
              <p class="dim">
                The largest minute of the week has {many(top)} ticks; the quota lets {many(Number(f.ticks_per_second) * 60)} a minute through. Hours with a dashed frame have at most a tenth of the
                largest minute: room to add.
              </p>
            </>
          );
        }}
      </Await>
    </Panel>
  );
}

interface HoursProps {
  days: Day[];
  top: number;
  table: boolean;
  pick: (at: string) => void;
}

function Hours({ days, top, table, pick }: HoursProps) {
  return (
    <div class="scroll" role="region" aria-label="Hours of the week" tabIndex={0}>
      <table class={table ? "heat figures" : "heat"} aria-label="The largest minute of each hour, in ticks">
        <thead>
          <tr>
            <th scope="col">day</th>
            {hours.map((h) => (
              <th scope="col" key={h}>
                {two(h)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {days.map((d) => (
            <tr key={d.date}>
              <th scope="row">{dayText(d.date)}</th>
              {d.hours.map((c, h) => (
                <Hour key={h} of={c} top={top} table={table} name={`${dayText(d.date)} ${two(h)}:00`} pick={pick} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** One hour. A click shows what is in its largest minute; in the table a button does. */
function Hour({ of: c, top, table, name, pick }: { of: Cell | null; top: number; table: boolean; name: string; pick: (at: string) => void }) {
  if (!c) return <td />;
  if (table) {
    return (
      <td class="num right">
        {c.at ? (
          <button type="button" class="button quiet" aria-label={`${name}: ${many(c.ticks)} ticks. Show them`} onClick={() => pick(c.at)}>
            {many(c.ticks)}
          </button>
        ) : (
          0
        )}
      </td>
    );
  }
  const words = `${name}: ${c.ticks ? `at most ${many(c.ticks)} ticks a minute` : "no tick"}`;
  return (
    <td class={`shade${shade(c.ticks, top)} ${c.ticks * 10 <= top ? "room" : ""}`} title={words} onClick={() => c.at && pick(c.at)}>
      <span class="hidden">{many(c.ticks)}</span>
    </td>
  );
}
