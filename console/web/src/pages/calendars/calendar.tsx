import { useState } from "preact/hooks";
import { useLocation, useRoute } from "preact-iso";
import { call, type Got, read } from "../../call";
import { now } from "../../live";
import { Action, Await, Empty, Head, Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Deletion } from "../../parts/dialog";
import { nameColumn, nextColumn, type Summary, stateColumn } from "../../parts/schedules";
import { type Column, Table } from "../../parts/table";
import { type Page, POLL, refresh, useList, useQuery } from "../../query";
import { dateOf } from "../../time";
import { toast } from "../../toast";
import { link, scheduleLink, useParams } from "../../url";
import { datedText } from "./days";
import { Form } from "./form";
import type { Calendar as Stored } from "./page";
import { Year } from "./year";
import "./style.css";

const thens = { drop: "does not fire", next: "on the next free day", previous: "on the free day before" };

const columns: Column<Summary>[] = [
  stateColumn,
  nameColumn,
  { head: "when", width: "minmax(160px, 2fr)", cell: (s) => <span title={s.reading}>{s.reading}</span> },
  {
    head: "on a day that is left out",
    width: "minmax(140px, 1fr)",
    cell: (s) => thens[s.spec.exclude?.then ?? "drop"],
  },
  nextColumn,
];

/** One calendar: its days, and the schedules that leave them out. */
export default function Calendar() {
  const name = useRoute().params.name;
  const { route } = useLocation();
  const [asked, ask] = useState<"edit" | "delete" | null>(null);
  const stored = useQuery({
    key: ["calendar", name],
    fn: (signal) => call("get", "/v1/calendars/{calendar}", { path: { calendar: name }, signal }) as Promise<Got<Stored>>,
    every: 2 * POLL,
  });
  const close = () => ask(null);
  return (
    <div class="stack">
      <Head
        title={name}
        sub={
          stored.data && (
            <>
              changed <Clock at={stored.data.value.updated_at} relative /> by <Name>{stored.data.value.updated_by}</Name>
            </>
          )
        }
      >
        <a class="button" href={`${link("audit")}?${new URLSearchParams({ target: `calendars/${name}` })}`}>
          Its changes
        </a>
        <Action scope="schedules:write" why={stored.data ? "" : "It is not read yet."} onClick={() => ask("edit")}>
          Change
        </Action>
        <Action scope="schedules:write" kind="danger" why={stored.data ? "" : "It is not read yet."} onClick={() => ask("delete")}>
          Delete
        </Action>
      </Head>
      <Await of={stored}>{({ value }) => <Days of={value} />}</Await>
      <Users name={name} />
      {asked === "edit" && stored.data && <Form stored={stored.data} onClose={close} />}
      {asked === "delete" && (
        <Deletion
          name={name}
          onClose={close}
          onSend={async () => {
            await call("delete", "/v1/calendars/{calendar}", { path: { calendar: name }, ifMatch: stored.data?.etag });
            toast(`The calendar ${name} is deleted.`);
            refresh(["calendars"]);
            route(link("calendars"));
          }}
        >
          <p>It is refused while any schedule names the calendar, also a paused or a completed one.</p>
        </Deletion>
      )}
    </div>
  );
}

/** The days of a calendar by year, or as a list. */
function Days({ of: c }: { of: Stored }) {
  const [query, change] = useParams();
  const [list, show] = useState(false);
  const today = dateOf(now());
  const years = [...new Set(c.dates.map((d) => Number(d.slice(0, 4))))];
  const near = years.find((y) => y >= Number(today.slice(0, 4))) ?? years.at(-1) ?? Number(today.slice(0, 4));
  const year = Number(query.year) || near;
  const shown = c.dates.filter((d) => d.startsWith(`${year}-`));
  return (
    <Panel
      title={`${shown.length} of ${c.dates.length} days are in ${year}`}
      tools={
        <>
          <button type="button" class="button icon" aria-label={`Before: ${year - 1}`} onClick={() => change({ year: String(year - 1) })}>
            ‹
          </button>
          <strong aria-live="polite">{year}</strong>
          <button type="button" class="button icon" aria-label={`After: ${year + 1}`} onClick={() => change({ year: String(year + 1) })}>
            ›
          </button>
          <Action kind="quiet" onClick={() => show(!list)}>
            {list ? "Year" : "List"}
          </Action>
        </>
      }
    >
      {list ? (
        <ul class="year-days num">
          {shown.map((d) => (
            <li key={d}>
              <time dateTime={d}>{datedText(d)}</time>
            </li>
          ))}
          {shown.length === 0 && <li class="dim">It leaves out no day of this year.</li>}
        </ul>
      ) : (
        <Year year={year} dates={new Set(shown)} today={today} />
      )}
      <p class="dim">A day begins and ends at midnight in the zone of each schedule.</p>
    </Panel>
  );
}

/** The schedules that name a calendar: a change of it retimes those that are active. */
function Users({ name }: { name: string }) {
  const list = useList<Summary>({
    key: ["calendar", name, "schedules"],
    fn: (cursor, signal) => read("/v1/schedules", { query: { calendar: name, fields: "summary", limit: 100, cursor } as never, signal }) as Promise<Page<Summary>>,
  });
  return (
    <Panel
      bare
      title="Schedules that leave these days out"
      tools={
        <a class="button" href={`${link("schedules")}?${new URLSearchParams({ calendar: name })}`}>
          In the list of schedules
        </a>
      }
    >
      <Table
        label="Schedules that leave these days out"
        columns={columns}
        rows={list.rows}
        id={(s) => `${s.workflow}/${s.key}`}
        href={(s) => scheduleLink(s.workflow, s.key)}
        list={list}
        empty={
          <Empty title={list.hasNextPage ? "None among the first schedules" : "No schedule names it"} action={list.hasNextPage && <Action onClick={() => list.fetchNextPage()}>Look further</Action>}>
            A schedule names the calendar in its spec: <code>{`"exclude": {"named": ["${name}"], "then": "next"}`}</code>. With then it fires on the nearest free day instead.
          </Empty>
        }
      />
    </Panel>
  );
}
