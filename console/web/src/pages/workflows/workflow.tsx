import { useState } from "preact/hooks";
import { useLocation, useRoute } from "preact-iso";
import { type Answer, call, type Got, read } from "../../call";
import { Chart } from "../../charts/chart";
import { Action, Await, Head, Panel, rateText } from "../../parts/basic";
import { Confirm, Deletion } from "../../parts/dialog";
import { Json } from "../../parts/json";
import { Status } from "../../parts/outcome";
import { POLL, refresh, useQuery } from "../../query";
import { lasting } from "../../time";
import { toast } from "../../toast";
import { link } from "../../url";
import { Form } from "./form";
import { Lateness } from "./lateness";
import type { Workflow as Stored } from "./page";
import { Wave } from "./wave";

/** One workflow: how it is delivered, where on Earth its schedules are, and what happened to its ticks. */
export default function Workflow() {
  const name = useRoute().params.name;
  const { route } = useLocation();
  const [asked, ask] = useState<"hold" | "edit" | "delete" | null>(null);
  const close = () => ask(null);
  const stored = useQuery({ key: ["workflow", name], fn: (signal) => call("get", "/v1/workflows/{workflow}", { path: { workflow: name }, signal }) as Promise<Got<Stored>>, every: 2 * POLL });
  const series = useQuery({ key: ["workflow-series", name], fn: (signal) => read("/v1/admin/series", { query: { workflow: name, step: "1m" }, signal }), every: 2 * POLL });
  const unread = stored.data ? "" : "It is not read yet.";
  const held = stored.data?.value.state === "held";
  const verb = held ? "Release" : "Hold";
  return (
    <div class="stack">
      <Head title={name} sub={stored.data && <Status of={stored.data.value.state} />}>
        <a class="button" href={`${link("schedules")}?${new URLSearchParams({ workflow: name })}`}>
          Schedules
        </a>
        <a class="button" href={`${link("ticks")}?${new URLSearchParams({ workflow: name })}`}>
          Ticks
        </a>
        <Action scope="tenant:admin" kind={held ? "main" : "danger"} why={unread} onClick={() => ask("hold")}>
          {verb}
        </Action>
        <Action scope="schedules:write" why={unread} onClick={() => ask("edit")}>
          Change
        </Action>
        <Action scope="schedules:write" kind="danger" why={unread} onClick={() => ask("delete")}>
          Delete
        </Action>
      </Head>
      <Await of={stored}>
        {({ value }) => (
          <div class="grid">
            <Facts of={value} />
            <Counts name={name} />
          </div>
        )}
      </Await>
      <Wave workflow={name} />
      <Panel title="The last hour">
        <Await of={series}>{(s) => <Hour of={s} />}</Await>
      </Panel>
      {asked === "edit" && stored.data && <Form stored={stored.data} onClose={close} />}
      {asked === "delete" && (
        <Deletion
          name={name}
          onClose={close}
          onSend={async () => {
            await call("delete", "/v1/workflows/{workflow}", { path: { workflow: name }, ifMatch: stored.data?.etag });
            toast(`The workflow ${name} is deleted.`);
            refresh(["workflows"]);
            route(link("workflows"));
          }}
        >
          <p>Its schedules stay. Their ticks are skipped from now on, until a workflow of this name is made again.</p>
        </Deletion>
      )}
      {asked === "hold" && (
        <Confirm
          title={`${verb} ${name}`}
          verb={verb}
          danger={!held}
          onClose={close}
          onSend={async () => {
            await call("post", held ? "/v1/workflows/{workflow}/release" : "/v1/workflows/{workflow}/hold", { path: { workflow: name }, ifMatch: stored.data?.etag });
            toast(held ? "The workflow is released." : "The workflow is held.");
            refresh();
          }}
        >
          <p>{held ? "What waited is handed out, by the policies of the schedules." : "Nothing of it is handed out until it is released. Running ticks and retries go on, and no schedule changes."}</p>
        </Confirm>
      )}
    </div>
  );
}

function Facts({ of: w }: { of: Stored }) {
  return (
    <Panel title="How it is delivered">
      <dl class="facts">
        <dt>to</dt>
        <dd>{w.endpoint ? <a href={link("endpoints", w.endpoint)}>{w.endpoint}</a> : "workers that lease its ticks"}</dd>
        <dt>version</dt>
        <dd>{w.version ?? <span class="dim">none</span>}</dd>
        <dt>at once</dt>
        <dd>{w.max_running ?? <span class="dim">no limit</span>}</dd>
        <dt>rate</dt>
        <dd>{w.rate ? rateText(w.rate) : <span class="dim">no limit</span>}</dd>
        <dt>expected</dt>
        <dd>
          {w.expect?.handed_out_within && `handed out within ${w.expect.handed_out_within} `}
          {w.expect?.ended_within && `ended within ${w.expect.ended_within}`}
          {!w.expect && <span class="dim">nothing</span>}
        </dd>
        <dt>fallback zone</dt>
        <dd>{w.fallback_timezone ?? <span class="dim">the tenant's</span>}</dd>
      </dl>
      <details>
        <summary>Defaults of its schedules</summary>
        <Json value={w.defaults} />
      </details>
    </Panel>
  );
}

/** How many schedules it has, by status. The overview lists the largest workflows. */
function Counts({ name }: { name: string }) {
  const overview = useQuery({ key: ["workflow-counts"], fn: (signal) => read("/v1/admin/overview", { signal }), every: 4 * POLL });
  return (
    <Panel title="Schedules">
      <Await of={overview}>
        {(o) => {
          const c = o.schedules.workflows.find((w) => w.workflow === name);
          if (!c) return <p class="dim">No schedule, or it is not among the largest workflows that are counted.</p>;
          return (
            <dl class="facts">
              {(["active", "paused", "completed", "quarantined"] as const).map((s) => (
                <>
                  <dt key={s}>{s}</dt>
                  <dd class="num">{Number(c[s]).toLocaleString("en")}</dd>
                </>
              ))}
            </dl>
          );
        }}
      </Await>
    </Panel>
  );
}

function Hour({ of: s }: { of: Answer<"/v1/admin/series"> }) {
  const b = s.buckets;
  if (b.length === 0) return <p class="dim">Nothing became due in it.</p>;
  return (
    <>
      <Chart
        label="Ticks by minute and lateness"
        at={b.map((m) => m.at)}
        lines={[
          { label: "succeeded", color: "--succeeded", kind: "bars", values: b.map((m) => Number(m.succeeded)) },
          { label: "failed", color: "--failed", kind: "bars", values: b.map((m) => Number(m.failed)) },
          { label: "skipped", color: "--skipped", kind: "bars", values: b.map((m) => Object.values(m.skipped).reduce((n, v) => n + Number(v), 0)) },
          { label: "99 % of lateness", color: "--late", kind: "line", right: true, values: b.map((m) => m.lateness_ms.p99), format: lasting },
        ]}
      />
      <Lateness of={s} />
    </>
  );
}
