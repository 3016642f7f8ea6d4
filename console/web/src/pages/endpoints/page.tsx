import { useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import type { components } from "../../api.gen";
import { read } from "../../call";
import { Action, Empty, Head, Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Status } from "../../parts/outcome";
import { type Column, Table } from "../../parts/table";
import { type Page, useList } from "../../query";
import { link } from "../../url";
import { Form } from "./form";

export type Endpoint = components["schemas"]["Endpoint"];

const columns: Column<Endpoint>[] = [
  { head: "state", width: "100px", cell: (e) => <Status of={e.state} /> },
  { head: "name", width: "minmax(120px, 1fr)", cell: (e) => <a href={link("endpoints", e.name)}>{e.name}</a> },
  { head: "address", width: "minmax(180px, 3fr)", cell: (e) => <Name mono>{e.url}</Name> },
  { head: "batch", width: "60px", cell: (e) => <span class="num">{e.batch}</span> },
  { head: "rate", width: "90px", cell: (e) => (e.rate ? <span class="num">{e.rate.per_second} / s</span> : <span class="dim">no limit</span>) },
  { head: "events", width: "70px", cell: (e) => (e.events.length > 0 ? <span class="num">{e.events.length}</span> : <span class="dim">none</span>) },
  { head: "changed", width: "minmax(180px, 1fr)", cell: (e) => <Clock at={e.updated_at} relative /> },
];

/** The addresses to which ticks are pushed. */
export default function Endpoints() {
  const [making, make] = useState(false);
  const { route } = useLocation();
  const list = useList<Endpoint>({
    key: ["endpoints"],
    fn: (cursor, signal) => read("/v1/endpoints", { query: { limit: 100, cursor }, signal }) as Promise<Page<Endpoint>>,
  });
  return (
    <div class="stack">
      <Head title="Endpoints" sub="Where ticks are pushed to">
        <Action scope="endpoints:write" kind="main" onClick={() => make(true)}>
          New endpoint
        </Action>
      </Head>
      <Panel bare>
        <Table
          label="Endpoints"
          columns={columns}
          rows={list.rows}
          id={(e) => e.name}
          href={(e) => link("endpoints", e.name)}
          list={list}
          empty={
            <Empty
              title="No endpoint"
              curl={`curl -X PUT ${location.origin}/v1/endpoints/mailer -H "Authorization: Bearer $CARILLON_TOKEN" -H 'Content-Type: application/json' -d '{"url": "https://mailer.example.com/ticks"}'`}
              cli="carillon endpoint put mailer --url https://mailer.example.com/ticks"
            >
              An endpoint is an address of yours to which Carillon sends signed ticks. Without one, workers lease the ticks.
            </Empty>
          }
        />
      </Panel>
      {making && <Form onClose={() => make(false)} onSaved={(e) => !e.secret && route(link("endpoints", e.name))} />}
    </div>
  );
}
