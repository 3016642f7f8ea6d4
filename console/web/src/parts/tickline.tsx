import type { components } from "../api.gen";
import { lasting } from "../time";
import { link, scheduleLink } from "../url";
import { Name } from "./basic";
import { Clock } from "./clock";

/** Which tick a line of a live list is of: its time, its schedule, and how long it ran. */
export function TickLine({ of: t }: { of: components["schemas"]["TailTick"] }) {
  return (
    <>
      <a href={link("ticks", t.tick_id)}>
        <Clock at={t.timestamp} local={t.local_time} seconds />
      </a>
      <a href={scheduleLink(t.workflow, t.key)}>
        <span class="dim">{t.workflow} / </span>
        <Name>{t.key}</Name>
      </a>
      <span class="dim num">{t.took_ms === undefined ? "" : lasting(t.took_ms)}</span>
    </>
  );
}
