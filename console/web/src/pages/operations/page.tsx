import type { components } from "../../api.gen";
import { read } from "../../call";
import { following, second } from "../../live";
import { Empty, Head, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { type Filter, Filters } from "../../parts/filters";
import { type Column, Table } from "../../parts/table";
import { type Page, useList } from "../../query";
import { link, useParams } from "../../url";
import { Progress, State, title } from "./words";

export type Operation = components["schemas"]["Operation"];

const filters: Filter[] = [{ name: "state", label: "state", always: true, values: ["pending", "running", "succeeded", "failed", "cancelled"] }];

const columns: Column<Operation>[] = [
  { head: "state", width: "110px", cell: (o) => <State of={o.state} /> },
  { head: "what it does", width: "minmax(200px, 2fr)", cell: (o) => <a href={link("operations", o.id)}>{title(o)}</a> },
  { head: "progress", width: "minmax(180px, 1.5fr)", cell: (o) => <Progress of={o} /> },
  { head: "begun", width: "minmax(190px, 1fr)", cell: (o) => <Clock at={o.created_at} relative /> },
  { head: "by", width: "minmax(100px, 1fr)", cell: (o) => <span class="break">{o.created_by}</span> },
];

/** Long work: under way, and what ended within a week. */
export default function Operations() {
  const [query] = useParams();
  const beat = following.value ? Math.floor(second.value / 5) : 0;
  const list = useList<Operation>({
    key: ["operations", query.state, beat],
    fn: (cursor, signal) => read("/v1/operations", { query: { state: (query.state || undefined) as never, limit: 100, cursor }, signal }) as Promise<Page<Operation>>,
  });
  return (
    <div class="stack">
      <Head title="Operations" sub="Long work: under way, and what ended within a week" />
      <Filters of={filters} />
      <Panel bare>
        <Table
          label="Operations"
          columns={columns}
          rows={list.rows}
          id={(o) => o.id}
          href={(o) => link("operations", o.id)}
          list={list}
          empty={
            <Empty title="No operation" cli="carillon operation list">
              A change of many schedules, a backfill or a replay of many dead letters appears here, with its progress.
            </Empty>
          }
        />
      </Panel>
    </div>
  );
}
