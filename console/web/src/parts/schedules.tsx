import type { components } from "../api.gen";
import { scheduleLink } from "../url";
import { Name } from "./basic";
import { Clock } from "./clock";
import { Status } from "./outcome";
import type { Column } from "./table";

export type Summary = components["schemas"]["ScheduleSummary"];

/** The columns that each table of schedules has: its state, its name with a link, and its next tick. */
export const stateColumn: Column<Summary> = { head: "state", width: "92px", cell: (s) => <Status of={s.status} /> };

export const nameColumn: Column<Summary> = {
  head: "workflow / key",
  width: "minmax(180px, 1.6fr)",
  cell: (s) => (
    <a href={scheduleLink(s.workflow, s.key)}>
      <span class="dim">{s.workflow} / </span>
      <Name>{s.key}</Name>
    </a>
  ),
};

export const nextColumn: Column<Summary> = {
  head: "next",
  width: "250px",
  cell: (s) => (s.status === "active" ? <Clock at={s.next_at} zone={s.timezone_in_force} local={s.next_local} next /> : <span class="dim">–</span>),
};
