import { useState } from "preact/hooks";
import { useLocation, useRoute } from "preact-iso";
import { type Answer, call, type Got, intent, read } from "../../call";
import { Action, Await, Head, Name, Panel, Problem, rateText } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Confirm, Deletion } from "../../parts/dialog";
import { Status } from "../../parts/outcome";
import { POLL, refresh, useQuery } from "../../query";
import { lasting } from "../../time";
import { toast } from "../../toast";
import { link } from "../../url";
import { Form } from "./form";
import { Health } from "./health";
import type { Endpoint as Stored } from "./page";
import { Rotation } from "./secret";
import "./style.css";

type State = Stored["state"];
type Asked = State | "edit" | "delete" | "rotate" | null;

const states: Record<State, { verb: string; words: string }> = {
  enabled: { verb: "Enable", words: "Ticks are sent again, those that waited first." },
  held: { verb: "Hold", words: "Ticks that become due wait, and are sent when the endpoint is enabled again." },
  disabled: { verb: "Disable", words: "Ticks are not sent. Those that wait, wait on until the endpoint is enabled again." },
};

/** One endpoint: whether it is sent to, how it answers, and what uses it. */
export default function Endpoint() {
  const name = useRoute().params.name;
  const { route } = useLocation();
  const [asked, ask] = useState<Asked>(null);
  const stored = useQuery({ key: ["endpoint", name], fn: (signal) => call("get", "/v1/endpoints/{name}", { path: { name }, signal }) as Promise<Got<Stored>>, every: 2 * POLL });
  const health = useQuery({ key: ["endpoint-health", name], fn: (signal) => read("/v1/endpoints/{name}/health", { path: { name }, signal }), every: POLL });
  const [trial, show] = useState<Answer<"/v1/endpoints/{name}/test", "post"> | null>(null);
  const [error, fail] = useState<unknown>(null);
  const [testing, work] = useState(false);
  const e = stored.data?.value;
  const waits = health.data ? Number(health.data.queued) : null;
  const close = () => ask(null);
  const test = async () => {
    work(true);
    fail(null);
    try {
      show((await call("post", "/v1/endpoints/{name}/test", { path: { name }, intent: intent() })).value);
    } catch (problem) {
      fail(problem);
    }
    work(false);
  };
  const change = async () => {
    await call("patch", "/v1/endpoints/{name}", { path: { name }, body: { state: asked as State } as never, ifMatch: stored.data?.etag });
    toast(`The endpoint is ${asked}.`);
    refresh();
  };
  return (
    <div class="stack">
      <Head title={name} sub={e && <Name mono>{e.url}</Name>}>
        <Action scope="endpoints:write" why={testing ? "A test is under way." : ""} onClick={test}>
          Send a test
        </Action>
        <Action scope="endpoints:write" onClick={() => ask("rotate")}>
          Rotate secret
        </Action>
        <Action scope="endpoints:write" why={e ? "" : "It is not read yet."} onClick={() => ask("edit")}>
          Change
        </Action>
        <Action scope="endpoints:write" kind="danger" onClick={() => ask("delete")}>
          Delete
        </Action>
      </Head>
      <Problem error={error} />
      {trial && <Trial of={trial} />}
      <Await of={stored}>
        {({ value }) => (
          <>
            <div class="grid">
              <Panel title="State">
                <div class="buttons">
                  <Status of={value.state} />
                  <span class="dim">{waits === null ? "" : `${waits.toLocaleString("en")} ${waits === 1 ? "tick waits" : "ticks wait"}`}</span>
                </div>
                <div class="buttons" role="group" aria-label="Change the state">
                  {(Object.keys(states) as State[]).map((s) => (
                    <Action key={s} scope="endpoints:write" why={s === value.state ? `It is ${s}.` : ""} onClick={() => ask(s)}>
                      {states[s].verb}
                    </Action>
                  ))}
                </div>
              </Panel>
              <Facts of={value} />
              <Used name={name} />
            </div>
            <Await of={health}>{(h) => <Health of={h} />}</Await>
            {asked === "edit" && stored.data && <Form stored={stored.data} onClose={close} />}
          </>
        )}
      </Await>
      {asked && asked in states && (
        <Confirm title={`${states[asked as State].verb} ${name}`} verb={states[asked as State].verb} danger={asked !== "enabled"} onClose={close} onSend={change}>
          <p>{states[asked as State].words}</p>
          {waits !== null && <p>{waits === 0 ? "No tick waits now." : `${waits.toLocaleString("en")} wait now.`}</p>}
        </Confirm>
      )}
      {asked === "rotate" && <Rotation name={name} onClose={close} onTest={test} />}
      {asked === "delete" && (
        <Deletion
          name={name}
          onClose={close}
          onSend={async () => {
            await call("delete", "/v1/endpoints/{name}", { path: { name }, ifMatch: stored.data?.etag });
            refresh(["endpoints"]);
            route(link("endpoints"));
          }}
        >
          <p>Its secret is gone for good. It is refused while a workflow names the endpoint.</p>
        </Deletion>
      )}
    </div>
  );
}

function Trial({ of: t }: { of: Answer<"/v1/endpoints/{name}/test", "post"> }) {
  return (
    <Panel title="Answer to the test">
      <div role="status" class="stack">
        <p>
          <strong>{t.error === null ? "It took the tick" : "It refused the tick"}</strong>: {t.status === null ? "no answer" : `status ${t.status}`} after {lasting(Number(t.took_ms))}
        </p>
        {t.error && (
          <pre>
            <Name>{t.error}</Name>
          </pre>
        )}
        <span class="dim mono break">{t.webhook_id}</span>
      </div>
    </Panel>
  );
}

function Facts({ of: e }: { of: Stored }) {
  return (
    <Panel title="How it is sent to">
      <dl class="facts">
        <dt>batch</dt>
        <dd>{e.batch === 1 ? "one tick a request" : `up to ${e.batch} ticks a request`}</dd>
        <dt>rate</dt>
        <dd>{e.rate ? rateText(e.rate) : "no limit of its own"}</dd>
        <dt>headers</dt>
        <dd>{Object.keys(e.headers).length > 0 ? Object.keys(e.headers).map((h) => <code key={h}>{h} </code>) : <span class="dim">none</span>}</dd>
        <dt>events</dt>
        <dd>{e.events.length > 0 ? e.events.join(", ") : <span class="dim">none</span>}</dd>
        <dt>made</dt>
        <dd>
          <Clock at={e.created_at} />
        </dd>
      </dl>
    </Panel>
  );
}

/** The workflows that push to it, of the first thousand. */
function Used({ name }: { name: string }) {
  const all = useQuery({ key: ["workflow-list"], fn: (signal) => read("/v1/workflows", { query: { limit: 1000 }, signal }) });
  return (
    <Panel title="Workflows that use it">
      <Await of={all}>
        {(page) => {
          const used = page.items.filter((w) => w.endpoint === name);
          if (used.length === 0) return <p class="dim">None{page.next_cursor ? " of the first thousand" : ""}.</p>;
          return (
            <ul>
              {used.map((w) => (
                <li key={w.name}>
                  <a href={link("workflows", w.name)}>{w.name}</a> {w.state === "held" && <Status of="held" />}
                </li>
              ))}
            </ul>
          );
        }}
      </Await>
    </Panel>
  );
}
