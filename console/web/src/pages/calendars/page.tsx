import { useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import type { components } from "../../api.gen";
import { read } from "../../call";
import { now } from "../../live";
import { Action, Empty, Head, Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { type Column, Table } from "../../parts/table";
import { type Page, useList } from "../../query";
import { dateOf } from "../../time";
import { link } from "../../url";
import { datedText } from "./days";
import { Form } from "./form";

export type Calendar = components["schemas"]["NamedCalendar"];

/** The coming day that a calendar leaves out, in UTC. */
const next = (c: Calendar) => c.dates.find((d) => d >= dateOf(now()));

const columns: Column<Calendar>[] = [
  { head: "name", width: "minmax(140px, 2fr)", cell: (c) => <a href={link("calendars", c.name)}>{c.name}</a> },
  { head: "days", width: "80px", cell: (c) => <span class="num">{c.dates.length.toLocaleString("en")}</span> },
  {
    head: "next day that is left out",
    width: "minmax(150px, 1fr)",
    cell: (c) => {
      const day = next(c);
      return day ? <span class="num">{datedText(day)}</span> : <span class="overdue">{c.dates.length ? "all have passed" : "it has no day"}</span>;
    },
  },
  {
    head: "last day",
    width: "minmax(130px, 1fr)",
    cell: (c) => <span class="num">{c.dates.length ? datedText(c.dates[c.dates.length - 1]) : "–"}</span>,
  },
  {
    head: "changed",
    width: "minmax(220px, 1.5fr)",
    cell: (c) => (
      <>
        <Clock at={c.updated_at} relative />{" "}
        <span class="dim">
          by <Name>{c.updated_by}</Name>
        </span>
      </>
    ),
  },
];

/** The calendars of days on which schedules do not fire. */
export default function Calendars() {
  const [making, make] = useState(false);
  const { route } = useLocation();
  const list = useList<Calendar>({
    key: ["calendars"],
    fn: (cursor, signal) => read("/v1/calendars", { query: { limit: 100, cursor }, signal }) as Promise<Page<Calendar>>,
  });
  const button = (
    <Action scope="schedules:write" kind="main" onClick={() => make(true)}>
      New calendar
    </Action>
  );
  return (
    <div class="stack">
      <Head title="Calendars" sub="Days on which schedules do not fire">
        {button}
      </Head>
      <Panel bare>
        <Table
          label="Calendars"
          columns={columns}
          rows={list.rows}
          id={(c) => c.name}
          href={(c) => link("calendars", c.name)}
          list={list}
          empty={
            <Empty
              title="No calendar"
              action={button}
              curl={`curl -X PUT ${location.origin}/v1/calendars/us-holidays -H "Authorization: Bearer $CARILLON_TOKEN" -H 'Content-Type: application/json' -d '{"dates": ["2026-12-25", "2027-01-01"]}'`}
              cli="carillon calendar put us-holidays --ics holidays.ics"
            >
              A calendar is a list of days, such as public holidays. A schedule leaves them out by the calendar's name, in exclude.named of its spec. A change of the calendar moves all of them.
            </Empty>
          }
        />
      </Panel>
      {making && <Form onClose={() => make(false)} onSaved={(name) => route(link("calendars", name))} />}
    </div>
  );
}
