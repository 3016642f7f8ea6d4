import { useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import type { components } from "../../api.gen";
import { type Answer, call, Problem, read } from "../../call";
import { second } from "../../live";
import { Action, Await, Empty, Head, Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Labels, Outcome, Status } from "../../parts/outcome";
import { POLL, useQuery } from "../../query";
import { link, scheduleLink } from "../../url";
import { Cancel, Erase, PauseAll, Profile, Rename } from "./actions";
import { QuietBand, quietly } from "./quiet";
import { Why } from "./why";
import "./style.css";

type Overview = Answer<"/v1/subjects/{subject}/overview">;
export type Receipt = components["schemas"]["Erasure"];

type Asking = "profile" | "rename" | "pause" | "cancel" | "erase" | null;

/** One subject over all workflows: the page that support works on. */
export default function Subject() {
  const { params } = useRoute();
  const subject = params.subject;
  const [asked, ask] = useState<Asking>(null);
  const [receipt, keep] = useState<Receipt | null>(null);
  const view = useQuery({
    key: ["subject", subject],
    fn: (signal) => read("/v1/subjects/{subject}/overview", { path: { subject }, signal }),
    every: POLL,
  });
  const close = () => ask(null);
  return (
    <div class="stack">
      <Head title={subject} sub="Subject: everything for it, in all workflows">
        <Action scope="schedules:write" onClick={() => ask("profile")}>
          Zone and quiet hours
        </Action>
        <Action scope="schedules:write" onClick={() => ask("pause")}>
          Pause all
        </Action>
        <Action scope="schedules:write" onClick={() => ask("rename")}>
          Rename
        </Action>
        <Action scope="schedules:write" kind="danger" onClick={() => ask("cancel")}>
          Cancel all
        </Action>
        <Action scope="subjects:erase" kind="danger" onClick={() => ask("erase")}>
          Erase
        </Action>
      </Head>
      {receipt && <ErasedNote receipt={receipt} />}
      <Await of={view}>
        {(o) =>
          !o.profile && o.schedules.length === 0 && o.recent.length === 0 ? (
            <Panel>
              <Empty
                title="Nothing is stored for this subject"
                cli={receipt ? undefined : `carillon schedule put reminders/'${subject.replaceAll("'", "'\\''")}' --cron '0 8 * * *' --timezone America/New_York`}
              >
                {receipt ? "It was erased: the receipt is above." : "It has no profile, no schedule and no tick in the history. Check the spelling: names are compared exactly."}
              </Empty>
            </Panel>
          ) : (
            <Parts of={o} subject={subject} />
          )
        }
      </Await>
      {asked === "profile" && <ProfileOf subject={subject} onClose={close} />}
      {asked === "rename" && <Rename subject={subject} onClose={close} />}
      {asked === "pause" && <PauseAll subject={subject} onClose={close} />}
      {asked === "cancel" && <Cancel subject={subject} onClose={close} />}
      {asked === "erase" && <Erase subject={subject} known={view.data} onErased={keep} onClose={close} />}
    </div>
  );
}

/** Reads the profile with its version before it can be changed. */
function ProfileOf({ subject, onClose }: { subject: string; onClose: () => void }) {
  const stored = useQuery({
    key: ["profile", subject],
    fn: async (signal) => {
      try {
        return await call("get", "/v1/subjects/{subject}", { path: { subject }, signal });
      } catch (error) {
        if (error instanceof Problem && error.status === 404) return null;
        throw error;
      }
    },
    once: true,
  });
  return stored.data === undefined ? null : <Profile subject={subject} stored={stored.data} onClose={onClose} />;
}

function Parts({ of, subject }: { of: Overview; subject: string }) {
  const zone = of.timezone_in_force;
  return (
    <>
      <div class="grid">
        <Panel title="Profile">
          <dl class="facts">
            <dt>zone</dt>
            <dd>
              {zone ?? <span class="dim">none</span>}
              {zone && !of.profile && <span class="dim"> (no profile: the fallback)</span>}
            </dd>
            {zone && (
              <>
                <dt>its clock</dt>
                <dd>
                  <Clock at={new Date(second.value * 1000).toISOString()} zone={zone} />
                </dd>
              </>
            )}
            <dt>quiet hours</dt>
            <dd>{quietly(of.profile?.quiet_hours ?? null)}</dd>
            <dt>labels</dt>
            <dd>{Object.keys(of.profile?.labels ?? {}).length > 0 ? <Labels of={of.profile?.labels} /> : <span class="dim">none</span>}</dd>
            {of.profile && (
              <>
                <dt>changed</dt>
                <dd>
                  <Clock at={of.profile.updated_at} relative /> <span class="dim">by {of.profile.updated_by}</span>
                </dd>
              </>
            )}
          </dl>
          {of.profile?.quiet_hours && <QuietBand of={of.profile.quiet_hours} />}
        </Panel>
        <Panel title={`Schedules (${of.schedules.length}${of.more ? "+" : ""})`} tools={of.more && <a href={`${link("schedules")}?${new URLSearchParams({ subject })}`}>All of them</a>}>
          <Schedules of={of} />
        </Panel>
      </div>
      <Why subject={subject} zone={zone} />
      <div class="grid">
        <Panel title="Coming">
          {of.upcoming.length === 0 ? (
            <p class="dim">No tick is to come.</p>
          ) : (
            <ol class="entries">
              {of.upcoming.slice(0, 20).map((t) => (
                <li key={t.timestamp + t.workflow + t.key}>
                  <Clock at={t.timestamp} zone={zoneOf(of, t.workflow, t.key)} local={t.local_time} relative />
                  <a href={scheduleLink(t.workflow, t.key)}>
                    <span class="dim">{t.workflow} / </span>
                    <Name>{t.key}</Name>
                  </a>
                </li>
              ))}
            </ol>
          )}
        </Panel>
        <Panel title="Last" tools={<a href={`${link("ticks")}?${new URLSearchParams({ subject })}`}>All ticks</a>}>
          {of.recent.length === 0 ? (
            <p class="dim">No tick has fired yet.</p>
          ) : (
            <ol class="entries">
              {of.recent.map((t) => (
                <li key={t.tick_id}>
                  <Clock at={t.timestamp} zone={t.timezone} local={t.local_time} dst={t.dst} />
                  <a href={link("ticks", t.tick_id)}>{t.workflow}</a>
                  <Outcome state={t.state} reason={t.reason} lateness={t.lateness_ms} why />
                </li>
              ))}
            </ol>
          )}
        </Panel>
      </div>
    </>
  );
}

const zoneOf = (of: Overview, workflow: string, key: string) => of.schedules.find((s) => s.workflow === workflow && s.key === key)?.timezone_in_force;

function Schedules({ of }: { of: Overview }) {
  if (of.schedules.length === 0) return <p class="dim">No schedule is for this subject now.</p>;
  return (
    <ul class="entries">
      {of.schedules.map((s) => (
        <li key={s.id}>
          <Status of={s.status} />
          <span class="break">
            <a href={scheduleLink(s.workflow, s.key)}>
              <span class="dim">{s.workflow} / </span>
              <Name>{s.key}</Name>
            </a>
            <br />
            <span class="dim">{s.reading}</span>
          </span>
          {s.status === "active" && <Clock at={s.next_at} zone={s.timezone_in_force} local={s.next_local} next />}
        </li>
      ))}
    </ul>
  );
}

/** The receipt of an erasure, which can be saved. */
function ErasedNote({ receipt }: { receipt: Receipt }) {
  const text = JSON.stringify(receipt, null, 2);
  return (
    <Panel
      title="Erased"
      tools={
        <a href={`data:application/json,${encodeURIComponent(text)}`} download={`erasure-${receipt.erased_at}.json`}>
          Save the receipt
        </a>
      }
    >
      <dl class="facts">
        <dt>when</dt>
        <dd>
          <Clock at={receipt.erased_at} /> <span class="dim">by {receipt.erased_by}</span>
        </dd>
        <dt>hash</dt>
        <dd class="mono break">{receipt.subject_hash}</dd>
        {Object.entries(receipt.counts).map(([kind, n]) => (
          <>
            <dt>{kind}</dt>
            <dd class="num">{Number(n).toLocaleString("en")}</dd>
          </>
        ))}
      </dl>
      <p class="dim">Save it now: only the hash, the counts and the actor stay in the audit.</p>
    </Panel>
  );
}
