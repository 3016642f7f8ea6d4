import { type Answer, read } from "../../call";
import { Await, Command, Empty, Panel } from "../../parts/basic";
import { Json, print } from "../../parts/json";
import { useQuery } from "../../query";
import { payloads } from "../../session";
import type { Shown } from "./data";

type Sample = Answer<"/v1/workflows/{workflow}/schedules/{key}/sample">;

/** What is sent: the payload exactly, and the whole request as it would be. */
export default function Payload({ of: { s, name } }: { of: Shown }) {
  const sample = useQuery({
    key: ["schedule", name.workflow, name.key, "sample", s.version],
    fn: (signal) => read("/v1/workflows/{workflow}/schedules/{key}/sample", { path: name, signal }),
    on: payloads.value,
    keep: true,
  });
  if (!payloads.value) {
    return (
      <Panel bare>
        <Empty title="Your key shows no payloads">A key with tenant:read sees what happens, but not what is sent. Ask an operator of the tenant for the scope schedules:read.</Empty>
      </Panel>
    );
  }
  return (
    <div class="stack">
      <Panel title="Payload">{s.payload === null || s.payload === undefined ? <p class="dim">The schedule has none.</p> : <Json value={s.payload} label="Payload" />}</Panel>
      <Panel title="As the next tick would be sent">
        <Await of={sample}>
          {(x: Sample) => (
            <>
              {Object.keys(x.headers).length > 0 && <Json value={x.headers} label="Headers" />}
              <Json value={x.body} label="Body" />
              <h3>As curl</h3>
              <Command text={curl(x)} />
            </>
          )}
        </Await>
      </Panel>
    </div>
  );
}

const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

function curl(x: Sample): string {
  const headers = Object.entries(x.headers).map(([name, value]) => `  -H ${quote(`${name}: ${value}`)} \\\n`);
  return `curl -X POST http://127.0.0.1:3000/ \\\n${headers.join("")}  -d ${quote(print(x.body))}`;
}
