import type { components } from "../../api.gen";
import { read } from "../../call";
import { Chart } from "../../charts/chart";
import { now } from "../../live";
import { Await, Empty, Figure, Head, Panel } from "../../parts/basic";
import { SaveCsv } from "../../parts/csv";
import { type Filter, Filters } from "../../parts/filters";
import { type Column, Table } from "../../parts/table";
import { useQuery } from "../../query";
import { dateOf } from "../../time";
import { useParams } from "../../url";
import { Quotas } from "./quotas";

type Use = components["schemas"]["Use"];

const filters: Filter[] = [
  { name: "workflow", label: "workflow", always: true },
  { name: "from", label: "from", type: "date", always: true },
  { name: "to", label: "to", type: "date", always: true },
];

const columns: Column<Use>[] = [
  { head: "day (UTC)", width: "110px", cell: (u) => u.day },
  { head: "ticks", width: "minmax(90px, 1fr)", cell: (u) => <Figure of={u.ticks} /> },
  { head: "succeeded", width: "minmax(90px, 1fr)", cell: (u) => <Figure of={u.succeeded} /> },
  { head: "failed", width: "minmax(80px, 1fr)", cell: (u) => <Figure of={u.failed} /> },
  { head: "cancelled", width: "minmax(80px, 1fr)", cell: (u) => <Figure of={u.cancelled} /> },
  { head: "skipped", width: "minmax(80px, 1fr)", cell: (u) => <Figure of={u.skipped} /> },
  { head: "missed", width: "minmax(80px, 1fr)", cell: (u) => <Figure of={u.missed} /> },
];

/** What was used by day, and the quotas with their use. */
export default function Usage() {
  const [query] = useParams();
  const from = query.from || dateOf(now() - 30 * 86_400_000);
  const asked = { from, to: query.to || undefined, workflow: query.workflow || undefined, by: query.workflow ? undefined : ("day" as const), limit: 400 };
  const usage = useQuery({ key: ["usage", asked], fn: (signal) => read("/v1/usage", { query: asked as never, signal }), keep: true });
  const days = [...(usage.data?.items ?? [])].reverse();
  const csv = [["day", "ticks", "succeeded", "failed", "cancelled", "skipped", "missed"], ...days.map((u) => [u.day, u.ticks, u.succeeded, u.failed, u.cancelled, u.skipped, u.missed])];
  return (
    <div class="stack">
      <Head title="Usage" sub="Ticks by day of UTC, and the quotas">
        <SaveCsv rows={csv} file="usage.csv" />
      </Head>
      <Quotas />
      <Filters of={filters} />
      <Await of={usage}>
        {() =>
          days.length === 0 ? (
            <Panel>
              <Empty title="Nothing was used" cli="carillon admin usage">
                A day appears here as soon as its first tick is recorded.
              </Empty>
            </Panel>
          ) : (
            <>
              <Panel title="Ticks a day">
                <Chart
                  label="Ticks a day by outcome"
                  zone="UTC"
                  at={days.map((u) => `${u.day}T00:00:00Z`)}
                  lines={[
                    { label: "succeeded", color: "--succeeded", kind: "bars", values: days.map((u) => Number(u.succeeded)) },
                    { label: "failed", color: "--failed", kind: "bars", values: days.map((u) => Number(u.failed)) },
                    { label: "skipped", color: "--skipped", kind: "bars", values: days.map((u) => Number(u.skipped)) },
                    { label: "cancelled", color: "--cancelled", kind: "bars", values: days.map((u) => Number(u.cancelled)) },
                  ]}
                />
              </Panel>
              <Panel bare>
                <Table label="Use by day" columns={columns} rows={[...days].reverse()} id={(u) => u.day + (u.workflow ?? "")} />
              </Panel>
            </>
          )
        }
      </Await>
    </div>
  );
}
