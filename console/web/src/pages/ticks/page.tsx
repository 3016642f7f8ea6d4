import type { components } from "../../api.gen";
import { read } from "../../call";
import { Empty, Head, Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { type Filter, Filters } from "../../parts/filters";
import { Outcome } from "../../parts/outcome";
import { type Column, Table } from "../../parts/table";
import { type Page, useList, useQuery } from "../../query";
import { lasting } from "../../time";
import { link, scheduleLink, useParams } from "../../url";
import { Tail } from "./tail";
import "./style.css";

export type Tick = components["schemas"]["TickRecord"];

const names = ["workflow", "key", "subject", "state", "cause", "operation", "schedule_id", "from", "to"];

const filters = (workflows: string[]): Filter[] => [
  { name: "workflow", label: "workflow", always: true, suggest: workflows },
  { name: "state", label: "state", always: true, values: ["scheduled", "running", "succeeded", "failed", "cancelled", "skipped"] },
  { name: "subject", label: "subject", always: true },
  { name: "key", label: "key is" },
  { name: "cause", label: "cause", values: ["schedule", "manual", "backfill", "catch_up", "buffered"] },
  { name: "operation", label: "operation" },
  { name: "schedule_id", label: "schedule id" },
  { name: "from", label: "from", hint: "2026-11-23T08:00:00Z" },
  { name: "to", label: "before", hint: "2026-11-24T08:00:00Z" },
];

export const columns: Column<Tick>[] = [
  { head: "nominal time", width: "minmax(200px, 1.4fr)", cell: (t) => <Clock at={t.timestamp} zone={t.timezone} local={t.local_time} dst={t.dst} seconds /> },
  {
    head: "workflow / key",
    width: "minmax(180px, 2fr)",
    cell: (t) => (
      <a href={scheduleLink(t.workflow, t.key)}>
        <span class="dim">{t.workflow} / </span>
        <Name>{t.key}</Name>
      </a>
    ),
  },
  { head: "outcome", width: "minmax(180px, 2fr)", cell: (t) => <Outcome state={t.state} reason={t.reason} why /> },
  { head: "late by", width: "90px", cell: (t) => <span class="num">{t.due_at && t.state === "scheduled" ? "–" : lasting(t.lateness_ms ?? 0)}</span> },
  { head: "attempts", width: "72px", cell: (t) => <span class="num">{t.attempt}</span> },
  { head: "cause", width: "90px", cell: (t) => <span class="dim">{t.cause.replaceAll("_", " ")}</span> },
  {
    head: "tick",
    width: "80px",
    cell: (t) => (
      <a href={link("ticks", t.tick_id)} aria-label={`Open ${t.tick_id}`}>
        Open
      </a>
    ),
  },
];

/** The ticks of the tenant: the history, or live as they fire and end. */
export default function Ticks() {
  const [query, change] = useParams();
  const live = query.view === "live";
  const picked = Object.fromEntries(names.filter((n) => query[n]).map((n) => [n, query[n]]));
  const workflows = useQuery({ key: ["workflow-names"], fn: (signal) => read("/v1/workflows", { query: { limit: 200 }, signal }) });
  const list = useList<Tick>({
    key: ["ticks", picked],
    fn: (cursor, signal) => read("/v1/ticks", { query: { ...picked, limit: 100, cursor } as never, signal }) as Promise<Page<Tick>>,
    on: !live,
  });
  return (
    <div class="stack">
      <Head title="Ticks" sub={live ? "As they fire and end" : "The history, newest nominal time first"}>
        <fieldset class="switch">
          <legend class="hidden">View</legend>
          {["history", "live"].map((v) => (
            <button type="button" class="button" key={v} aria-pressed={live === (v === "live")} onClick={() => change({ view: v === "live" ? "live" : undefined })}>
              {v === "live" ? "Live tail" : "History"}
            </button>
          ))}
        </fieldset>
      </Head>
      <Filters of={filters((workflows.data?.items ?? []).map((w) => w.name))} />
      {live ? (
        <Tail filter={picked} />
      ) : (
        <Panel bare>
          <Table
            label="Ticks"
            columns={columns}
            rows={list.rows}
            id={(t) => t.tick_id}
            href={(t) => link("ticks", t.tick_id)}
            list={list}
            empty={
              Object.keys(picked).length > 0 ? (
                <Empty title="No tick matches">Take a filter away, or look at another time.</Empty>
              ) : (
                <Empty title="No tick has fired yet" cli="carillon schedule trigger daily-digest/user_123">
                  A tick is one nominal firing of a schedule. It appears here when it is handed out.
                </Empty>
              )
            }
          />
        </Panel>
      )}
    </div>
  );
}
