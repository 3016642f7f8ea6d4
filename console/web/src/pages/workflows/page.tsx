import { useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import type { components } from "../../api.gen";
import { read } from "../../call";
import { Action, Empty, Head, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Status } from "../../parts/outcome";
import { type Column, Table } from "../../parts/table";
import { type Page, useList } from "../../query";
import { link } from "../../url";
import { Form } from "./form";

export type Workflow = components["schemas"]["Workflow"];

const columns: Column<Workflow>[] = [
  { head: "state", width: "100px", cell: (w) => <Status of={w.state} /> },
  { head: "name", width: "minmax(140px, 2fr)", cell: (w) => <a href={link("workflows", w.name)}>{w.name}</a> },
  { head: "delivered to", width: "minmax(120px, 1fr)", cell: (w) => (w.endpoint ? <a href={link("endpoints", w.endpoint)}>{w.endpoint}</a> : <span class="dim">workers</span>) },
  { head: "version", width: "minmax(90px, 1fr)", cell: (w) => w.version ?? <span class="dim">none</span> },
  { head: "at once", width: "80px", cell: (w) => <span class="num">{w.max_running ?? "no limit"}</span> },
  { head: "rate", width: "80px", cell: (w) => <span class="num">{w.rate ? `${w.rate.per_second} / s` : "no limit"}</span> },
  { head: "changed", width: "minmax(180px, 1fr)", cell: (w) => <Clock at={w.updated_at} relative /> },
];

/** The workflows of the tenant. */
export default function Workflows() {
  const [making, make] = useState(false);
  const { route } = useLocation();
  const list = useList<Workflow>({
    key: ["workflows"],
    fn: (cursor, signal) => read("/v1/workflows", { query: { limit: 100, cursor }, signal }) as Promise<Page<Workflow>>,
  });
  const button = (
    <Action scope="schedules:write" kind="main" onClick={() => make(true)}>
      New workflow
    </Action>
  );
  return (
    <div class="stack">
      <Head title="Workflows" sub="What the ticks of schedules start">
        {button}
      </Head>
      <Panel bare>
        <Table
          label="Workflows"
          columns={columns}
          rows={list.rows}
          id={(w) => w.name}
          href={(w) => link("workflows", w.name)}
          list={list}
          empty={
            <Empty
              title="No workflow"
              action={button}
              curl={`curl -X PUT ${location.origin}/v1/workflows/daily-digest -H "Authorization: Bearer $CARILLON_TOKEN" -H 'Content-Type: application/json' -d '{"endpoint": "mailer"}'`}
              cli="carillon workflow put daily-digest --endpoint mailer"
            >
              A workflow is what runs at a tick. Its first schedule also registers it.
            </Empty>
          }
        />
      </Panel>
      {making && <Form onClose={() => make(false)} onSaved={(name) => route(link("workflows", name))} />}
    </div>
  );
}
