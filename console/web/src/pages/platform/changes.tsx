import type { components } from "../../api.gen";
import { read } from "../../call";
import { Empty, Head, Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { type Column, Table } from "../../parts/table";
import { type Page, useList } from "../../query";

type Entry = components["schemas"]["AuditEntry"];

const columns: Column<Entry>[] = [
  { head: "when", width: "minmax(200px, 1fr)", cell: (e) => <Clock at={e.at} seconds /> },
  { head: "actor", width: "minmax(120px, 1fr)", cell: (e) => <Name>{e.actor}</Name> },
  { head: "action", width: "minmax(120px, 1fr)", cell: (e) => <code>{e.action}</code> },
  { head: "target", width: "minmax(160px, 2fr)", cell: (e) => <Name>{e.target}</Name> },
];

/** What the platform's operators changed. */
export default function Changes() {
  const list = useList<Entry>({
    key: ["platform-audit"],
    fn: (cursor, signal) => read("/v1/platform/audit", { query: { limit: 100, cursor } as never, signal }) as unknown as Promise<Page<Entry>>,
  });
  return (
    <div class="stack">
      <Head title="Audit" sub="Changes to tenants, newest first" />
      <Panel bare>
        <Table
          label="Changes to tenants"
          columns={columns}
          rows={list.rows}
          id={(e) => String(e.id)}
          list={list}
          empty={
            <Empty title="No change yet" cli="carillon platform audit">
              Each change of a tenant has an entry here.
            </Empty>
          }
        />
      </Panel>
    </div>
  );
}
