import { useState } from "preact/hooks";
import { read } from "../../call";
import { now } from "../../live";
import { Action, Empty, Head, Menu, Panel } from "../../parts/basic";
import { type Filter, Filters } from "../../parts/filters";
import { Labels, Outcome } from "../../parts/outcome";
import { nameColumn, nextColumn, type Summary, stateColumn } from "../../parts/schedules";
import { type Column, Table } from "../../parts/table";
import { type Page, POLL, useList, useQuery } from "../../query";
import { refused } from "../../session";
import { zones } from "../../time";
import { link, scheduleLink, useParams } from "../../url";
import { Bulk } from "./bulk";
import { Cohorts } from "./cohorts";
import { Export } from "./export";
import { Import } from "./import";

const oneOf = ["key", "key_prefix", "key_contains", "subject", "label", "timezone", "calendar", "failing", "due"];
const others = (name: string) => oneOf.filter((n) => n !== name);

const filters = (workflows: string[]): Filter[] => [
  { name: "key_contains", label: "key contains", always: true, instead: others("key_contains") },
  { name: "workflow", label: "workflow", always: true, suggest: workflows },
  { name: "status", label: "status", always: true, values: ["active", "paused", "completed", "quarantined"] },
  { name: "key_prefix", label: "key begins with", instead: others("key_prefix") },
  { name: "key", label: "key is", instead: others("key") },
  { name: "subject", label: "subject", instead: others("subject") },
  { name: "label", label: "label", hint: "plan:pro", always: true, instead: others("label") },
  { name: "timezone", label: "zone", suggest: zones.value?.items.map((z) => z.timezone) ?? [], instead: others("timezone") },
  { name: "calendar", label: "leaves out calendar", instead: others("calendar") },
  { name: "failing", label: "last tick failed", values: ["true"], instead: others("failing") },
  { name: "due", label: "due within", values: ["5m", "1h", "24h"], instead: others("due") },
];

const spans: Record<string, number> = { "5m": 300_000, "1h": 3_600_000, "24h": 86_400_000 };

/** The list's query of the API for the query of the address. */
export function asked(query: Record<string, string>): Record<string, string> {
  const names = ["workflow", "status", ...oneOf.filter((n) => n !== "due")];
  const chosen = Object.fromEntries(names.filter((n) => query[n]).map((n) => [n, query[n]]));
  if (spans[query.due]) chosen.due_before = new Date(Math.ceil((now() + spans[query.due]) / 60_000) * 60_000).toISOString();
  return chosen;
}

const columns: Column<Summary>[] = [
  stateColumn,
  nameColumn,
  {
    head: "when",
    width: "minmax(160px, 2fr)",
    cell: (s) => <span title={[s.reading, ...(Array.isArray(s.spec.cron) ? s.spec.cron : [s.spec.cron ?? ""])].join("\n")}>{s.reading}</span>,
  },
  nextColumn,
  {
    head: "last",
    width: "104px",
    cell: (s) => (s.last_outcome ? <Outcome state={s.last_outcome} /> : <span class="dim">none yet</span>),
  },
  { head: "labels", width: "minmax(80px, 1fr)", cell: (s) => <Labels of={s.labels} /> },
];

/** The schedules of the tenant: found, followed and changed, also many at once. */
export default function Schedules() {
  const [query, change] = useParams();
  const [selected, select] = useState<Set<string>>(new Set());
  const [moving, move] = useState<"export" | "import" | null>(null);
  const chosen = asked(query);
  const cohorts = query.group === "timing";
  const narrowed = Object.keys(chosen).length > 0;
  const overview = useQuery({ key: ["overview"], fn: (signal) => read("/v1/admin/overview", { signal }), on: !refused("tenant:read") });
  const list = useList<Summary>({
    key: ["schedules", { ...chosen, due_before: query.due }],
    fn: (cursor, signal) => read("/v1/schedules", { query: { ...chosen, cursor, limit: 100, fields: "summary" } as never, signal }) as Promise<Page<Summary>>,
    on: !cohorts,
  });
  const workflows = overview.data?.schedules.workflows.map((w) => w.workflow) ?? [];
  return (
    <>
      <Head title="Schedules">
        <Action kind="quiet" onClick={() => change({ group: cohorts ? "" : "timing" })}>
          {cohorts ? "Show each schedule" : "Group by timing"}
        </Action>
        <Action kind="quiet" onClick={() => list.refetch()}>
          Read again
        </Action>
        <Menu label="Export and import" text="File" kind="quiet">
          <Action kind="quiet" scope="schedules:read" onClick={() => move("export")}>
            Export to a file
          </Action>
          <Action kind="quiet" scope="schedules:write" onClick={() => move("import")}>
            Import a file
          </Action>
        </Menu>
        <Action kind="main" href={link("schedules", "new")} scope="schedules:write">
          New schedule
        </Action>
      </Head>
      <Filters of={filters(workflows)} />
      {cohorts ? (
        <Cohorts workflow={query.workflow} every={POLL} />
      ) : (
        <>
          <Bulk selected={selected} filter={narrowed ? chosen : { all: true }} rows={list.rows.length} onDone={() => select(new Set())} onClear={() => select(new Set())} />
          <Panel bare>
            <Table
              label="Schedules"
              columns={columns}
              rows={list.rows}
              id={(s) => `${s.workflow}/${s.key}`}
              href={(s) => scheduleLink(s.workflow, s.key)}
              list={list}
              total={narrowed ? null : overview.data?.schedules.total}
              selected={selected}
              onSelect={select}
              empty={
                narrowed ? (
                  <Empty title="No schedule matches" action={<Action onClick={() => change(Object.fromEntries(Object.keys(query).map((n) => [n, ""])))}>Remove all filters</Action>}>
                    Nothing has all of these. Try a part of the key instead of its beginning.
                  </Empty>
                ) : (
                  <None />
                )
              }
            />
          </Panel>
        </>
      )}
      {moving === "export" && <Export workflow={query.workflow ?? ""} onClose={() => move(null)} />}
      {moving === "import" && <Import onClose={() => move(null)} />}
    </>
  );
}

function None() {
  return (
    <Empty
      title="There are no schedules yet"
      action={
        <Action kind="main" href={link("schedules", "new")} scope="schedules:write">
          Make the first one
        </Action>
      }
      curl={`curl -X PUT ${location.origin}/v1/workflows/hello/schedules/me \\
  -H "Authorization: Bearer $CARILLON_TOKEN" -H "Content-Type: application/json" \\
  -d '{"spec": {"timezone": "America/New_York", "cron": "0 8 * * 1-5"}}'`}
      cli={`carillon schedule put hello/me --cron "0 8 * * 1-5" --timezone America/New_York`}
    >
      A schedule says when a workflow fires for one key, such as a user: at 08:00 on weekdays in New York. Each firing is a tick, which your endpoint or your worker receives.
    </Empty>
  );
}
