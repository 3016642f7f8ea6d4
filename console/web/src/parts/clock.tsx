import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { now, second } from "../live";
import { chosen, mine, offsetAt, relative, show } from "../time";

interface Card {
  at: string;
  zone?: string | null;
  local?: string | null;
  dst?: string | null;
  box: DOMRect;
  of: EventTarget | null;
}

const card = signal<Card | null>(null);

interface Props {
  /** An instant, RFC 3339. */
  at?: string | null;
  /** The zone of the schedule; absent: a system's event, shown in the user's zone. */
  zone?: string | null;
  /** The server's own local time of it. */
  local?: string | null;
  dst?: string | null;
  seconds?: boolean;
  /** Shows beside it how far away it is. */
  relative?: boolean;
  /** A next time: if it has passed, it is due and waits. */
  next?: boolean;
  /** The keyboard reaches it too, and opens the card. */
  focus?: boolean;
  /** Why a due one waits, if it is known. */
  waits?: string;
}

/** A time with its zone, by the clock that the user has chosen. A card shows the other clocks. */
export function Clock({ at, zone, local, dst, seconds, relative: beside, next, waits, focus }: Props) {
  const shown = useRef<HTMLTimeElement>(null);
  useLayoutEffect(() => {
    const of = shown.current;
    return () => {
      if (of && card.peek()?.of === of) card.value = null; // no pointer leaves what is gone
    };
  }, [!at]);
  if (!at) return <span class="dim">–</span>;
  const z = chosen(zone);
  const s = show(at, z, { local: z === zone ? local : undefined, seconds });
  const open = (e: { currentTarget: EventTarget | null }) => {
    card.value = { at, zone, local, dst, box: (e.currentTarget as Element).getBoundingClientRect(), of: e.currentTarget };
  };
  const away = beside || next ? Date.parse(at) - Math.max(second.value * 1000, now() - 1000) : 0;
  const close = () => {
    card.value = null;
  };
  return (
    <>
      <time
        ref={shown}
        class={s.known ? "clock nowrap" : "clock nowrap unknown"}
        dateTime={at}
        onMouseEnter={open}
        onMouseLeave={close}
        tabIndex={focus ? 0 : undefined}
        onFocus={focus ? open : undefined}
        onBlur={focus ? close : undefined}
      >
        {s.text}
      </time>
      {dst && dst !== "none" && (
        <span class="dim" title={dstWords[dst] ?? dst}>
          {" ◆"}
          <span class="hidden">{dstWords[dst] ?? dst}</span>
        </span>
      )}
      {next && away < 0 ? (
        <span class="overdue">
          {" "}
          due {relative(away)}, waiting{waits ? `: ${waits}` : ""}
        </span>
      ) : (
        (beside || next) && (
          <>
            {" "}
            <span class="dim nowrap">{relative(away)}</span>
          </>
        )
      )}
    </>
  );
}

export const dstWords: Record<string, string> = {
  gap: "the clock skips this time: moved by the rule for gaps",
  overlap_first: "the clock shows this time twice: the first",
  overlap_second: "the clock shows this time twice: the second",
};

/** The card of the time under the pointer. The shell has one. */
export function ClockCard() {
  const el = useRef<HTMLDivElement>(null);
  const c = card.value;
  useLayoutEffect(() => {
    if (!c || !el.current) return;
    const { offsetWidth: w, offsetHeight: h } = el.current;
    el.current.style.left = `${Math.max(8, Math.min(c.box.left, innerWidth - w - 8))}px`;
    el.current.style.top = `${c.box.bottom + h + 8 > innerHeight ? c.box.top - h - 4 : c.box.bottom + 4}px`;
  }, [c]);
  if (!c) return null;
  const rows: [string, string, string | null | undefined][] = [];
  if (c.zone) rows.push(["schedule", c.zone, c.local]);
  rows.push(["mine", mine, null], ["UTC", "UTC", null]);
  return (
    <div class="clock-card" ref={el} aria-hidden="true">
      <dl class="facts">
        {rows.map(([who, zone, local]) => (
          <>
            <dt>{who}</dt>
            <dd>
              {show(c.at, zone, { local, seconds: true }).text} <span class="dim">{zone === "UTC" ? "" : `${zone} ${offsetAt(zone, Date.parse(c.at)) ? show(c.at, zone).offset : ""}`}</span>
            </dd>
          </>
        ))}
        {c.dst && c.dst !== "none" && (
          <>
            <dt>change</dt>
            <dd>{dstWords[c.dst] ?? c.dst}</dd>
          </>
        )}
        <dt>exact</dt>
        <dd class="mono">{c.at}</dd>
      </dl>
    </div>
  );
}
