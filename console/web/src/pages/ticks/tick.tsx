import { useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import { call, read } from "../../call";
import { Action, Await, Copy, Head, Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Confirm } from "../../parts/dialog";
import { Json } from "../../parts/json";
import { because, Outcome, outcomeOf, shapes } from "../../parts/outcome";
import { POLL, refresh, useQuery } from "../../query";
import { payloads } from "../../session";
import { lasting } from "../../time";
import { toast } from "../../toast";
import { link, scheduleLink } from "../../url";
import type { Tick as Record } from "./page";
import "./style.css";

type Attempt = NonNullable<Record["attempts"]>[number];

const ended = (t: Record) => !["scheduled", "running"].includes(t.state);

/** One tick: its way from its nominal time to its end, its attempts, payload and result. */
export default function Tick() {
  const { params } = useRoute();
  const [asked, ask] = useState<"cancel" | "replay" | null>(null);
  const tick = useQuery({
    key: ["tick", params.id],
    fn: (signal) => read("/v1/ticks/{id}", { path: { id: params.id }, signal }) as Promise<Record>,
    every: POLL,
  });
  const t = tick.data;
  const send = (verb: "cancel" | "replay") => async (intent: string) => {
    await call("post", `/v1/ticks/{id}/${verb}`, { path: { id: params.id }, intent } as never);
    toast(verb === "cancel" ? "The tick is cancelled, or told to stop." : "The tick is delivered again.");
    refresh();
  };
  return (
    <div class="stack">
      <Head title={t ? `${t.workflow} / ${t.key}` : "Tick"} sub={<span class="mono break">{params.id}</span>}>
        <Copy text={params.id} label="Copy the id" />
        <Action scope="tenant:admin" why={t && t.state !== "failed" ? "Only a dead letter can be replayed: a tick that failed for good." : ""} onClick={() => ask("replay")}>
          Replay
        </Action>
        <Action scope="schedules:write" kind="danger" why={t && ended(t) ? "It has ended." : ""} onClick={() => ask("cancel")}>
          Cancel
        </Action>
      </Head>
      <Await of={tick}>{(t) => <Body of={t} />}</Await>
      {asked === "cancel" && (
        <Confirm title="Cancel the tick" verb="Cancel it" onClose={() => ask(null)} onSend={send("cancel")}>
          <p>A tick that waits is cancelled at once. A running one is told to stop: its next heartbeat answers 409.</p>
        </Confirm>
      )}
      {asked === "replay" && (
        <Confirm title="Replay the tick" verb="Deliver it again" danger={false} onClose={() => ask(null)} onSend={send("replay")}>
          <p>It is delivered again with the same tick_id and payload, and with all its attempts.</p>
        </Confirm>
      )}
    </div>
  );
}

function Body({ of: t }: { of: Record }) {
  return (
    <>
      <div class="grid">
        <Panel title="What it is">
          <dl class="facts">
            <dt>outcome</dt>
            <dd>
              <Outcome state={t.state} reason={t.reason} />
              {t.reason && <span class="dim"> {because(t.reason)}</span>}
            </dd>
            <dt>schedule</dt>
            <dd>
              <a href={scheduleLink(t.workflow, t.key)}>
                {t.workflow} / <Name>{t.key}</Name>
              </a>
              <span class="dim"> version {t.schedule_version}</span>
            </dd>
            <dt>subject</dt>
            <dd>
              <a href={link("subjects", t.subject)}>
                <Name>{t.subject}</Name>
              </a>
            </dd>
            <dt>zone</dt>
            <dd>{t.timezone}</dd>
            <dt>cause</dt>
            <dd>{t.cause.replaceAll("_", " ")}</dd>
            <dt>occurrence</dt>
            <dd>{t.occurrence ?? <span class="dim">outside of the sequence</span>}</dd>
            <dt>tick before</dt>
            <dd>
              <Clock at={t.last_timestamp} zone={t.timezone} />
            </dd>
            {t.missed_count > 0 && (
              <>
                <dt>stands for</dt>
                <dd>{t.missed_count} earlier times that were missed</dd>
              </>
            )}
          </dl>
        </Panel>
        <Panel title="Its way">
          <Way of={t} />
        </Panel>
      </div>
      {(t.attempts?.length ?? 0) > 0 && (
        <Panel title="Attempts">
          <Attempts of={t.attempts ?? []} />
        </Panel>
      )}
      <div class="grid">
        <Panel title="Payload">
          {!payloads.value ? (
            <p class="dim">Your key does not see payloads.</p>
          ) : t.payload_kept === false ? (
            <p class="dim">It is no longer kept: the retention of ticks has dropped it.</p>
          ) : t.payload === undefined ? (
            <p class="dim">It fired without a payload.</p>
          ) : (
            <Json value={t.payload} label="Payload" />
          )}
        </Panel>
        <Panel title="Result">
          {t.result === undefined ? <p class="dim">There is none.</p> : payloads.value ? <Json value={t.result} label="Result" /> : <p class="dim">Your key does not see results.</p>}
        </Panel>
      </div>
    </>
  );
}

/** The stages of the tick, each with its time. */
function Way({ of: t }: { of: Record }) {
  const waits = t.state === "scheduled";
  const o = outcomeOf(t.state, t.reason);
  return (
    <ol class="way">
      <li>
        <span class="dim">named for</span>
        <Clock at={t.timestamp} zone={t.timezone} local={t.local_time} dst={t.dst} seconds />
      </li>
      {t.due_at && (
        <li>
          <span class="dim">fires</span>
          <Clock at={t.due_at} zone={t.timezone} seconds relative />
        </li>
      )}
      {!waits && t.fired_at && (
        <li>
          <span class="dim">{t.state === "skipped" ? "decided" : "handed out"}</span>
          <span>
            <Clock at={t.fired_at} zone={t.timezone} seconds />
            <span class="dim"> {lasting(t.lateness_ms ?? 0)} after its time</span>
          </span>
        </li>
      )}
      <li>
        <span class="dim">{t.ended_at ? "ended" : "now"}</span>
        <span>
          <span class={`shape ${o}`} aria-hidden="true">
            {shapes[o]}
          </span>{" "}
          {o}
          {t.ended_at && (
            <>
              {" "}
              <Clock at={t.ended_at} zone={t.timezone} seconds />
              {t.fired_at && <span class="dim"> {lasting(Date.parse(t.ended_at) - Date.parse(t.fired_at))} later</span>}
            </>
          )}
          {t.error && (
            <pre class="answer">
              <Name>{t.error}</Name>
            </pre>
          )}
        </span>
      </li>
    </ol>
  );
}

/** A bar an attempt: how long it waited for the one before, and how long it took. */
function Attempts({ of }: { of: Attempt[] }) {
  const first = Math.min(...of.map((a) => Date.parse(a.started_at ?? a.ended_at)));
  const last = Math.max(...of.map((a) => Date.parse(a.ended_at)));
  const whole = Math.max(1, last - first);
  return (
    <ol class="attempts">
      {of.map((a) => {
        const start = Date.parse(a.started_at ?? a.ended_at);
        const o = outcomeOf(a.outcome === "succeeded" ? "succeeded" : a.outcome === "cancelled" ? "cancelled" : "failed");
        return (
          <li key={a.attempt}>
            <div class="attempt-head">
              <span class={`outcome ${o}`}>
                <span class="shape" aria-hidden="true">
                  {shapes[o]}
                </span>
                attempt {a.attempt}: {a.outcome.replaceAll("_", " ")}
              </span>
              {a.status !== undefined && <span class="num">{a.status}</span>}
              <span class="dim num">{a.took_ms === null || a.took_ms === undefined ? "" : `in ${lasting(a.took_ms)}`}</span>
              <Clock at={a.started_at ?? a.ended_at} seconds />
              {a.worker && (
                <span class="dim">
                  worker <Name>{a.worker}</Name>
                </span>
              )}
            </div>
            <div class="bar" aria-hidden="true">
              <i class={o} style={{ marginLeft: `${((start - first) / whole) * 100}%`, width: `max(3px, ${((Date.parse(a.ended_at) - start) / whole) * 100}%)` }} />
            </div>
            {(a.answer || a.error) && (
              <pre class="answer">
                <Name>{a.error ?? a.answer}</Name>
              </pre>
            )}
          </li>
        );
      })}
    </ol>
  );
}
