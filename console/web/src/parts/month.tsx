import { useState } from "preact/hooks";
import { now } from "../live";
import { addDays, dateOf, months, wall } from "../time";
import { dstWords } from "./clock";
import { because, outcomeOf, shapes } from "./outcome";

/** What a day of the month shows: a tick that fired, or one that is to come. */
export interface Mark {
  at: string;
  /** The server's local time: 2026-11-23T08:00:00-05:00. Its date decides the day. */
  local: string;
  state?: string;
  reason?: string;
  dst?: string;
  href?: string;
}

interface Props {
  marks: Mark[];
  zone: string;
  /** The month that is shown: 2026-11. */
  month: string;
  onMonth: (month: string) => void;
  onPick?: (mark: Mark) => void;
  /** Days that are left out, each with the reason, by date. */
  excluded?: Map<string, string>;
  /** Ticks are known until this instant; later days may have more. */
  until?: string;
}

const most = 4;
const name = (month: string) => `${months[Number(month.slice(5)) - 1]} ${month.slice(0, 4)}`;

/** The month before or after one. */
export function step(month: string, n: number): string {
  return new Date(Date.UTC(Number(month.slice(0, 4)), Number(month.slice(5)) - 1 + n, 1)).toISOString().slice(0, 7);
}

/** The six weeks that a month is shown in, from a Monday on, as dates. */
export function weeksOf(month: string): string[][] {
  const first = Date.parse(`${month}-01T00:00:00Z`);
  const monday = first - ((new Date(first).getUTCDay() + 6) % 7) * 86_400_000;
  return Array.from({ length: 6 }, (_, w) => Array.from({ length: 7 }, (_, d) => dateOf(monday + (w * 7 + d) * 86_400_000)));
}

/** Six weeks of ticks in the zone of the schedule. Keys: arrows move by days, PgUp and PgDn by months. */
export function Month({ marks, zone, month, onMonth, onPick, until, excluded }: Props) {
  const today = wall(now(), zone).slice(0, 10);
  const [at, move] = useState(today.startsWith(month) ? today : `${month}-01`);
  const days = Map.groupBy(marks, (m) => m.local.slice(0, 10));
  const keys = (e: KeyboardEvent) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -7, ArrowDown: 7 }[e.key];
    if (by !== undefined) {
      const next = addDays(at, by);
      move(next);
      if (!next.startsWith(month)) onMonth(next.slice(0, 7));
      requestAnimationFrame(() => document.getElementById(`day-${next}`)?.focus());
    } else if (e.key === "PageUp" || e.key === "PageDown") onMonth(step(month, e.key === "PageUp" ? -1 : 1));
    else return;
    e.preventDefault();
  };
  return (
    <div class="month-box">
      <div class="buttons month-head">
        <button type="button" class="button icon" aria-label={`Before: ${name(step(month, -1))}`} onClick={() => onMonth(step(month, -1))}>
          ‹
        </button>
        <strong aria-live="polite">{name(month)}</strong>
        <button type="button" class="button icon" aria-label={`After: ${name(step(month, 1))}`} onClick={() => onMonth(step(month, 1))}>
          ›
        </button>
        <span class="dim">{zone}</span>
      </div>
      <table class="month" aria-label={`${name(month)} in ${zone}`} onKeyDown={keys}>
        <thead>
          <tr>
            {["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].map((d) => (
              <th key={d} scope="col">
                {d}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {weeksOf(month).map((week) => (
            <tr key={week[0]}>
              {week.map((day) => {
                const of = days.get(day) ?? [];
                const open = until !== undefined && day > until.slice(0, 10);
                return (
                  <td
                    key={day}
                    id={`day-${day}`}
                    tabIndex={day === at ? 0 : -1}
                    class={`${day.startsWith(month) ? "" : "other"} ${day === today ? "today" : ""} ${open ? "open" : ""} ${excluded?.has(day) ? "excluded" : ""}`}
                  >
                    <span class="date num" title={day}>
                      {Number(day.slice(8))}
                      {of.some((m) => m.dst && m.dst !== "none") && <span title="the clock changes">{" ◆"}</span>}
                    </span>
                    {excluded?.has(day) && <span class="reason break">{excluded.get(day)}</span>}
                    <Day marks={of} onPick={onPick} />
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Day({ marks, onPick }: { marks: Mark[]; onPick?: (m: Mark) => void }) {
  const shown = marks.length > 20 ? [] : marks.slice(0, marks.length > most ? most - 1 : most);
  const rest = marks.length - shown.length;
  const hours = marks.length > 20 ? Array.from({ length: 24 }, (_, h) => marks.filter((m) => Number(m.local.slice(11, 13)) === h).length) : [];
  const top = Math.max(1, ...hours);
  return (
    <>
      {shown.map((m) => {
        const o = m.state ? outcomeOf(m.state, m.reason) : null;
        const words = `${m.local.slice(11, 16)}, ${o ?? "to come"}${m.reason ? `: ${because(m.reason)}` : ""}${m.dst && m.dst !== "none" ? `, ${dstWords[m.dst] ?? m.dst}` : ""}`;
        return (
          <button type="button" key={m.at} class={o ? `mark ${o}` : "mark coming"} aria-label={words} title={words} onClick={() => onPick?.(m)}>
            <span class="shape" aria-hidden="true">
              {o ? shapes[o] : "○"}
            </span>
            <span class="num">{m.local.slice(11, 16)}</span>
          </button>
        );
      })}
      {rest > 0 && (
        <span class="dim num">
          {shown.length ? "+" : ""}
          {rest}
          {shown.length ? "" : " ticks"}
        </span>
      )}
      {hours.length > 0 && (
        <svg class="hours" viewBox="0 0 24 10" preserveAspectRatio="none" aria-hidden="true">
          {hours.map((n, h) => (
            <rect key={h} x={h + 0.1} y={10 - (n / top) * 10} width={0.8} height={(n / top) * 10} />
          ))}
        </svg>
      )}
    </>
  );
}
