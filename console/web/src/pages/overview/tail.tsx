import { useEffect, useRef, useState } from "preact/hooks";
import type { components } from "../../api.gen";
import { address, type StreamEvent, stream } from "../../call";
import { following } from "../../live";
import { Panel, Problem } from "../../parts/basic";
import { Outcome } from "../../parts/outcome";
import { TickLine } from "../../parts/tickline";
import { link } from "../../url";

type Line = components["schemas"]["TailTick"] & { id: string };

const most = 12;

/** Ticks as they end. It stands still while the page is paused, or under the pointer. */
export function Tail() {
  const [lines, set] = useState<Line[]>([]);
  const [unshown, add] = useState(0);
  const [error, fail] = useState<unknown>(null);
  const held = useRef(false);
  const on = following.value;
  useEffect(() => {
    if (!on) return;
    const end = new AbortController();
    let waiting: Line[] = [];
    const draw = setInterval(() => {
      if (waiting.length === 0 || held.current) return;
      const next = waiting;
      waiting = [];
      set((old) => [...next.reverse(), ...old].slice(0, most));
    }, 500);
    const hear = (e: StreamEvent) => {
      if (e.event === "tick") {
        const tick = e.data as Omit<Line, "id">;
        if (tick.kind === "ended") waiting = [...waiting.slice(1 - most), { ...tick, id: e.id }];
      } else if (e.event === "second") add((n) => n + ((e.data as { unshown?: number }).unshown ?? 0));
    };
    stream(address("/v1/ticks/tail"), hear, end.signal).catch(fail);
    return () => {
      end.abort();
      clearInterval(draw);
    };
  }, [on]);
  return (
    <Panel bare title="Ticks as they end" tools={<a href={link("ticks")}>All ticks</a>}>
      <Problem error={error} />
      {lines.length === 0 && !error ? (
        <p class="skeleton">{on ? "Ticks appear here as soon as one ends." : "Paused."}</p>
      ) : (
        <div class="tail" onMouseEnter={() => (held.current = true)} onMouseLeave={() => (held.current = false)}>
          {lines.map((t) => (
            <div class="line" key={t.id || t.tick_id + t.kind}>
              <Outcome state={t.state} reason={t.reason} lateness={t.lateness_ms} />
              <TickLine of={t} />
            </div>
          ))}
          {unshown > 0 && <p class="skeleton">… and {unshown.toLocaleString("en")} more that are not shown</p>}
        </div>
      )}
    </Panel>
  );
}
