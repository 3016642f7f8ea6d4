import { useEffect, useRef, useState } from "preact/hooks";
import type { components } from "../../api.gen";
import { address, type StreamEvent, stream } from "../../call";
import { following } from "../../live";
import { Action, Panel, Problem } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Outcome } from "../../parts/outcome";
import { TickLine } from "../../parts/tickline";

type Line = components["schemas"]["TailTick"] & { row: number };

/** Lines that are kept: a herd must not fill the memory of the tab. */
const most = 400;
const shown = 200;

/** New ticks at the top. The list stands still under the pointer, and while the page is paused. */
export function Tail({ filter }: { filter: Record<string, string> }) {
  const [lines, set] = useState<Line[]>([]);
  const [unshown, count] = useState(0);
  const [rate, beat] = useState<{ fired: number; ended: number } | null>(null);
  const [gap, missed] = useState<{ from: string; to: string } | null>(null);
  const [error, fail] = useState<unknown>(null);
  const held = useRef(false);
  const on = following.value;
  const asked = JSON.stringify(filter);
  useEffect(() => {
    if (!on) return;
    fail(null);
    const end = new AbortController();
    let waiting: Line[] = [];
    let row = 0;
    const draw = setInterval(() => {
      if (waiting.length === 0 || held.current) return;
      const next = waiting.reverse();
      waiting = [];
      set((old) => [...next, ...old].slice(0, most));
    }, 250);
    const hear = (e: StreamEvent) => {
      if (e.event === "tick") {
        waiting.push({ ...(e.data as Omit<Line, "row">), row: ++row });
        if (waiting.length > most) waiting = waiting.slice(-most);
      } else if (e.event === "second") {
        const s = e.data as components["schemas"]["TailSecond"];
        beat(s);
        if (s.unshown) count((n) => n + Number(s.unshown));
      } else if (e.event === "gap") missed(e.data as { from: string; to: string });
    };
    stream(address("/v1/ticks/tail", {}, JSON.parse(asked)), hear, end.signal).catch(fail);
    return () => {
      end.abort();
      clearInterval(draw);
    };
  }, [on, asked]);
  return (
    <Panel
      bare
      title={rate ? `${rate.fired.toLocaleString("en")} fired, ${rate.ended.toLocaleString("en")} ended in the last second` : "Live tail"}
      tools={
        <>
          {unshown > 0 && <span class="dim">{unshown.toLocaleString("en")} not shown</span>}
          <Action
            kind="quiet"
            onClick={() => {
              set([]);
              count(0);
              missed(null);
            }}
          >
            Clear
          </Action>
        </>
      }
    >
      <Problem error={error} />
      {gap && (
        <p class="skeleton">
          The connection was away for too long: ticks between <Clock at={gap.from} seconds /> and <Clock at={gap.to} seconds /> are only in the history.
        </p>
      )}
      {lines.length === 0 && !error && <p class="skeleton">{on ? "Ticks appear here as soon as one fires." : "The page is paused. Press l to follow again."}</p>}
      <div
        class="tail-rows"
        role="log"
        aria-label="Ticks as they fire and end"
        aria-live="off"
        onMouseEnter={() => {
          held.current = true;
        }}
        onMouseLeave={() => {
          held.current = false;
        }}
      >
        {lines.slice(0, shown).map((t) => (
          <div class="line" key={t.row}>
            <span class="dim">{t.kind}</span>
            <Outcome state={t.kind === "fired" ? "running" : t.state} reason={t.reason} why lateness={t.lateness_ms} />
            <TickLine of={t} />
          </div>
        ))}
      </div>
    </Panel>
  );
}
