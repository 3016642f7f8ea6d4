import { type Answer, read } from "../../call";
import { Await, Command, Figure, Head, Panel } from "../../parts/basic";
import { type Column, Table } from "../../parts/table";
import { POLL, useQuery } from "../../query";
import { lasting } from "../../time";

type Process = Answer<"/v1/platform/overview">["processes"][number];

const columns: Column<Process>[] = [
  { head: "process", width: "minmax(160px, 2fr)", cell: (p) => <span class="mono">{p.name}</span> },
  { head: "roles", width: "minmax(140px, 1fr)", cell: (p) => p.roles.join(", ") },
  { head: "version", width: "minmax(100px, 1fr)", cell: (p) => p.version },
  { head: "heartbeat", width: "110px", cell: (p) => <span class="num">{lasting(Number(p.beat_age_ms))} ago</span> },
  { head: "shards", width: "90px", cell: (p) => <span class="num">{p.shards} of 64</span> },
];

/** The engine over all tenants: its processes, what is due and what waits. */
export default function Engine() {
  const view = useQuery({ key: ["platform"], fn: (signal) => read("/v1/platform/overview", { signal }), every: POLL });
  return (
    <div class="stack">
      <Head title="Engine" sub="All processes and all tenants" />
      <Await of={view}>
        {(v) => (
          <>
            {Number(v.broken_promises) > 0 && (
              <div class="problem" role="alert">
                <strong>
                  <Figure of={v.broken_promises} /> rows contradict a promise.
                </strong>{" "}
                Run the command that says which, and what to do.
                <Command text="carillon doctor" />
              </div>
            )}
            <div class="grid">
              <Panel title="Sweep">
                <dl class="facts">
                  <dt>due, not swept</dt>
                  <dd>
                    <Figure of={v.due} />
                  </dd>
                  <dt>oldest of them</dt>
                  <dd class={Number(v.oldest_due_age_ms) > 5000 ? "overdue" : ""}>{Number(v.oldest_due_age_ms) ? `${lasting(Number(v.oldest_due_age_ms))} ago` : "–"}</dd>
                  <dt>swept, not handed out</dt>
                  <dd>
                    <Figure of={v.unopened} />
                  </dd>
                  <dt>broken promises</dt>
                  <dd>
                    <Figure of={v.broken_promises} />
                  </dd>
                </dl>
              </Panel>
              <Panel title="Jobs that wait">
                <dl class="facts">
                  {Object.entries(v.queues).map(([queue, n]) => (
                    <>
                      <dt>{queue}</dt>
                      <dd>
                        <Figure of={n} />
                      </dd>
                    </>
                  ))}
                  {Object.keys(v.queues).length === 0 && <dt>none</dt>}
                </dl>
              </Panel>
              <Panel title="Tenants">
                <dl class="facts">
                  <dt>active</dt>
                  <dd>
                    <Figure of={v.tenants.active} />
                  </dd>
                  <dt>suspended</dt>
                  <dd>
                    <Figure of={v.tenants.suspended} />
                  </dd>
                  <dt>being erased</dt>
                  <dd>
                    <Figure of={v.tenants.erasing} />
                  </dd>
                </dl>
              </Panel>
            </div>
            <Panel bare title="Processes">
              <Table label="Processes" columns={columns} rows={v.processes} id={(p) => p.name} empty={<p class="skeleton">No process is alive.</p>} />
            </Panel>
          </>
        )}
      </Await>
    </div>
  );
}
