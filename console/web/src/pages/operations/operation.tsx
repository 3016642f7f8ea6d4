import { useRef, useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import { call, read } from "../../call";
import { now } from "../../live";
import { Action, Await, Copy, Head, Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Confirm } from "../../parts/dialog";
import { Json } from "../../parts/json";
import { refresh, useQuery } from "../../query";
import { lasting } from "../../time";
import { toast } from "../../toast";
import { link } from "../../url";
import type { Operation as Of } from "./page";
import { Progress, pauses, State, title } from "./words";

const ended = (o?: Of) => o !== undefined && !["pending", "running"].includes(o.state);

/** One operation with its progress. A pause of many schedules can be undone here. */
export default function Operation() {
  const { params } = useRoute();
  const [asked, ask] = useState<"cancel" | "undo" | null>(null);
  const last = useRef<Of | undefined>(undefined);
  const op = useQuery({
    key: ["operation", params.id],
    fn: (signal) => read("/v1/operations/{id}", { path: { id: params.id }, signal }) as Promise<Of>,
    every: ended(last.current) ? undefined : 1000,
  });
  last.current = op.data;
  const o = op.data;
  return (
    <div class="stack">
      <Head title={o ? title(o) : "Operation"} sub={<span class="mono break">{params.id}</span>}>
        <Copy text={params.id} label="Copy the id" />
        {o && pauses(o) && (
          <Action scope="schedules:write" onClick={() => ask("undo")}>
            Undo
          </Action>
        )}
        <Action scope="schedules:write" kind="danger" why={ended(o) ? "It has ended." : ""} onClick={() => ask("cancel")}>
          Stop
        </Action>
      </Head>
      <Await of={op}>{(o) => <Body of={o} />}</Await>
      {asked === "cancel" && (
        <Confirm
          title="Stop the operation"
          verb="Stop it"
          onClose={() => ask(null)}
          onSend={async () => {
            await call("post", "/v1/operations/{id}/cancel", { path: { id: params.id } });
            toast("It stops after the step that is under way.");
            refresh(["operation"]);
          }}
        >
          <p>What it has done stays done.</p>
        </Confirm>
      )}
      {asked === "undo" && <Undo id={params.id} onClose={() => ask(null)} />}
    </div>
  );
}

function Body({ of: o }: { of: Of }) {
  const took = o.started_at ? (o.ended_at ? Date.parse(o.ended_at) : now()) - Date.parse(o.started_at) : 0;
  const pace = took > 0 ? (Number(o.done) / took) * 1000 : 0;
  const left = o.total === null || ended(o) ? 0 : Number(o.total) - Number(o.done);
  return (
    <div class="grid">
      <Panel title="Progress">
        <Progress of={o} />
        <dl class="facts">
          <dt>state</dt>
          <dd>
            <State of={o.state} />
          </dd>
          {took > 0 && (
            <>
              <dt>{o.ended_at ? "took" : "for"}</dt>
              <dd>
                {lasting(took)} <span class="dim">{pace >= 1 && `${Math.round(pace).toLocaleString("en")} a second`}</span>
              </dd>
            </>
          )}
          {left > 0 && pace > 0 && (
            <>
              <dt>ends in about</dt>
              <dd>{lasting((left / pace) * 1000)}</dd>
            </>
          )}
          {Object.entries(o.counts ?? {}).map(([kind, n]) => (
            <>
              <dt>{kind.replaceAll("_", " ")}</dt>
              <dd class="num">{Number(n).toLocaleString("en")}</dd>
            </>
          ))}
          <dt>by</dt>
          <dd>
            <Name>{o.created_by}</Name>
          </dd>
          <dt>begun</dt>
          <dd>
            <Clock at={o.created_at} seconds relative />
          </dd>
          {o.ended_at && (
            <>
              <dt>ended</dt>
              <dd>
                <Clock at={o.ended_at} seconds />
              </dd>
            </>
          )}
        </dl>
        {o.error && (
          <div class="problem" role="alert">
            <strong>
              <Name>{o.error}</Name>
            </strong>
          </div>
        )}
      </Panel>
      <Panel title="What was asked">
        <Json value={o.params} label="What was asked" />
        {o.result && <Json value={o.result} label="Result" />}
      </Panel>
    </div>
  );
}

/** Resumes exactly the schedules that the pause paused. */
function Undo({ id, onClose }: { id: string; onClose: () => void }) {
  const filter = { operation: id };
  const plan = useQuery({
    key: ["undo", id],
    fn: async (signal) =>
      (await call("post", "/v1/schedules/actions", { body: { action: "resume", filter, dry_run: true } as never, signal })).value as unknown as { matched: number; changed: number },
  });
  const n = plan.data?.changed ?? 0;
  return (
    <Confirm
      title="Undo the pause"
      danger={false}
      verb={`Resume ${n.toLocaleString("en")}`}
      onClose={onClose}
      onSend={async (intent) => {
        const got = await call("post", "/v1/schedules/actions", { body: { action: "resume", filter } as never, intent });
        const op = (got.value as { operation?: { id: string } }).operation;
        toast("The schedules are being resumed.", op && { href: link("operations", op.id), text: "Follow it" });
        refresh();
      }}
    >
      <Await of={plan}>
        {(p) => (
          <p>
            <strong class="num">{p.changed.toLocaleString("en")}</strong> schedules that this operation paused are resumed. Those that somebody paused or resumed by hand since then stay as they are.
          </p>
        )}
      </Await>
    </Confirm>
  );
}
