import { useState } from "preact/hooks";
import type { components } from "../../api.gen";
import { read } from "../../call";
import { Action, Copy, Empty, Head, Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Dialog } from "../../parts/dialog";
import { type Filter, Filters } from "../../parts/filters";
import { Diff } from "../../parts/json";
import { type Column, Table } from "../../parts/table";
import { type Page, useList } from "../../query";
import { link, scheduleLink, useParams } from "../../url";

type Entry = components["schemas"]["AuditEntry"];

const names = ["actor", "action", "target", "from", "to"];
const filters: Filter[] = [
  { name: "actor", label: "actor", always: true },
  { name: "action", label: "action", always: true, hint: "schedule.put" },
  { name: "target", label: "target", always: true, hint: "workflows/daily-digest/…" },
  { name: "from", label: "from", hint: "2026-11-23T08:00:00Z" },
  { name: "to", label: "before", hint: "2026-11-24T08:00:00Z" },
];

/** The page of what was changed, if there is one. Parts of a target are percent-encoded. */
function place(target: string): string {
  const parts = target.split("/").map((p) => {
    try {
      return decodeURIComponent(p);
    } catch {
      return p;
    }
  });
  if (parts[0] === "workflows" && parts[2] === "schedules" && parts[3]) return scheduleLink(parts[1], parts[3]);
  if (["workflows", "endpoints", "subjects", "operations", "ticks", "calendars"].includes(parts[0]) && parts[1]) return link(parts[0], parts[1]);
  return "";
}

const columns = (open: (e: Entry) => void): Column<Entry>[] => [
  { head: "when", width: "minmax(200px, 1fr)", cell: (e) => <Clock at={e.at} seconds /> },
  {
    head: "actor",
    width: "minmax(130px, 1fr)",
    cell: (e) => (
      <>
        <Name>{e.actor}</Name>
        {e.through && <span class="chip">{e.through}</span>}
      </>
    ),
  },
  { head: "action", width: "minmax(130px, 1fr)", cell: (e) => <code>{e.action}</code> },
  {
    head: "target",
    width: "minmax(180px, 2fr)",
    cell: (e) =>
      place(e.target) ? (
        <a href={place(e.target)}>
          <Name>{e.target}</Name>
        </a>
      ) : (
        <Name>{e.target}</Name>
      ),
  },
  {
    head: "change",
    width: "90px",
    cell: (e) => (
      <Action kind="quiet" label={`Show change ${e.id}`} onClick={() => open(e)}>
        Show
      </Action>
    ),
  },
];

/** Each change with its actor, before and after. */
export default function Audit() {
  const [query] = useParams();
  const [opened, open] = useState<Entry | null>(null);
  const picked = Object.fromEntries(names.filter((n) => query[n]).map((n) => [n, query[n]]));
  const list = useList<Entry>({
    key: ["audit", picked],
    fn: (cursor, signal) => read("/v1/admin/audit", { query: { ...picked, limit: 100, cursor }, signal }) as Promise<Page<Entry>>,
  });
  return (
    <div class="stack">
      <Head title="Audit" sub="Each change, newest first" />
      <Filters of={filters} />
      <Panel bare>
        <Table
          label="Changes"
          columns={columns(open)}
          rows={list.rows}
          id={(e) => String(e.id)}
          list={list}
          empty={
            <Empty title="No change matches" cli="carillon admin audit">
              Each change of a schedule, a workflow, an endpoint or a key has an entry here.
            </Empty>
          }
        />
      </Panel>
      {opened && (
        <Dialog title={opened.action} wide onClose={() => open(null)}>
          <dl class="facts">
            <dt>when</dt>
            <dd>
              <Clock at={opened.at} seconds />
            </dd>
            <dt>actor</dt>
            <dd>
              <Name>{opened.actor}</Name> {opened.through && <span class="dim">through the {opened.through}</span>}
            </dd>
            <dt>from</dt>
            <dd>{opened.remote ?? <span class="dim">the service itself</span>}</dd>
            <dt>target</dt>
            <dd>
              <Name>{opened.target}</Name>
            </dd>
            {opened.request && (
              <>
                <dt>request</dt>
                <dd>
                  <code class="break">{opened.request}</code> <Copy text={opened.request} label="Copy the request id" />
                </dd>
              </>
            )}
          </dl>
          <Diff before={opened.before ?? undefined} after={opened.after ?? undefined} same="The audit holds no difference for it." />
        </Dialog>
      )}
    </div>
  );
}
