import { type Answer, read } from "../../call";
import { Empty, Panel, Problem } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { type Column, Table } from "../../parts/table";
import { useQuery } from "../../query";
import { link } from "../../url";

type Group = NonNullable<Answer<"/v1/admin/forecast">["groups"]>[number];

const columns: Column<Group>[] = [
  { head: "workflow", width: "minmax(120px, 1fr)", cell: (g) => g.workflow ?? "" },
  {
    head: "when",
    width: "minmax(180px, 2fr)",
    cell: (g) => <a href={`${link("schedules")}?${new URLSearchParams({ workflow: g.workflow ?? "", timezone: g.timezone ?? "" })}`}>{g.reading}</a>,
  },
  { head: "zone", width: "minmax(120px, 1fr)", cell: (g) => g.timezone ?? "" },
  { head: "schedules", width: "100px", cell: (g) => <span class="num">{g.count.toLocaleString("en")}</span> },
  { head: "next", width: "minmax(180px, 1.5fr)", cell: (g) => <Clock at={g.next_at} zone={g.timezone} next /> },
];

/** The schedules by their timing: a million of them are often a few hundred groups. */
export function Cohorts({ workflow, every }: { workflow?: string; every: number }) {
  const forecast = useQuery({
    key: ["cohorts", workflow],
    fn: (signal) => read("/v1/admin/forecast", { query: { hours: 24, group: "workflow,timezone,timing", workflow: workflow || undefined }, signal }),
    every: every * 6,
  });
  return (
    <Panel bare>
      <Problem error={forecast.error} retry={() => forecast.refetch()} />
      <Table
        label="Groups of schedules with the same timing"
        columns={columns}
        rows={forecast.data?.groups ?? []}
        id={(g) => `${g.workflow} ${g.timezone} ${g.reading}`}
        empty={forecast.data ? <Empty title="No active schedule">A group appears here as soon as one of its schedules is active.</Empty> : <p class="skeleton">Reading…</p>}
      />
    </Panel>
  );
}
