import { useState } from "preact/hooks";
import { useLocation, useRoute } from "preact-iso";
import { call, type Got, Text } from "../../call";
import { Action, Await, complaint, Field, Head, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Dialog } from "../../parts/dialog";
import { Diff } from "../../parts/json";
import { Policies } from "../../parts/policies";
import { useRival } from "../../parts/rival";
import { refresh, useQuery } from "../../query";
import { payloads, refused } from "../../session";
import { mine, needZones } from "../../time";
import { toast } from "../../toast";
import { link, scheduleLink, useParams } from "../../url";
import type { Schedule } from "../schedule/data";
import { bodyOf, type Draft, definition, draftOf, fresh, simpleOf } from "./draft";
import { CalendarForm, CronForm, IntervalForm, JSONForm, RuleForm, SimpleForm, Zone } from "./forms";
import { PreviewPanel, usePreview } from "./preview";
import "./style.css";

const at = "/v1/workflows/{workflow}/schedules/{key}" as const;
const kinds = { simple: SimpleForm, cron: CronForm, calendar: CalendarForm, interval: IntervalForm, rrule: RuleForm, json: JSONForm };
type Kind = keyof typeof kinds;

const words: Record<Kind, string> = { simple: "Days and times", cron: "Cron", calendar: "Calendar", interval: "Interval", rrule: "RRULE", json: "JSON" };

/** The editor of a new schedule, or of a stored one. */
export default function EditorPage() {
  const { params } = useRoute();
  const [query] = useParams();
  const { workflow, key } = params as { workflow?: string; key?: string };
  needZones();
  const stored = useQuery({
    key: ["edited", workflow, key],
    fn: (signal) => call("get", at, { path: { workflow: workflow as string, key: key as string }, signal }) as Promise<Got<Schedule>>,
    on: Boolean(workflow && key),
    once: true,
  });
  if (!workflow || !key) return <Editor base={fresh(mine, query)} etag="" />;
  return <Await of={stored}>{({ value, etag }) => <Editor base={draftOf(value)} etag={etag} key={value.id} />}</Await>;
}

function kindOf(d: Draft): Kind {
  const s = d.spec;
  const timing = ["cron", "calendars", "intervals", "rrule", "at", "relative"].filter((n) => n in s);
  if (timing.length > 1 || s.at || s.relative) return "json";
  if (s.intervals) return s.intervals.length > 1 ? "json" : "interval";
  if (s.rrule) return "rrule";
  if (s.calendars) return s.calendars.length > 1 ? "json" : "calendar";
  return simpleOf(s) ? "simple" : "cron";
}

function Editor({ base, etag }: { base: Draft; etag: string }) {
  const [first] = useState(base);
  const [draft, set] = useState(base);
  const [kind, choose] = useState<Kind>(kindOf(base));
  const [saving, save] = useState(false);
  const preview = usePreview(draft);
  const fresh = etag === "";
  const error = preview.next.error;
  const Form = kinds[kind];
  const badPayload = payloadFault(draft.payload);
  const why = !draft.workflow || !draft.key ? "Name the workflow and the key first." : badPayload ? "The payload is not JSON." : "";
  const change = (part: Partial<Draft>) => set({ ...draft, ...part });
  return (
    <>
      <Head title={fresh ? "New schedule" : `Edit ${draft.key}`} sub={fresh ? "" : draft.workflow}>
        <Action kind="quiet" href={fresh ? link("schedules") : scheduleLink(first.workflow, first.key)}>
          Cancel
        </Action>
        <Action kind="main" scope="schedules:write" why={why} onClick={() => save(true)}>
          {fresh ? "Make it" : "Save"}
        </Action>
      </Head>
      <div class="editor">
        <div class="stack">
          {fresh && <Names draft={draft} onChange={change} />}
          <Panel title="When">
            <div class="tabs" role="group" aria-label="How to say it">
              {(Object.keys(kinds) as Kind[]).map((k) => (
                <button type="button" key={k} class="button quiet" aria-pressed={k === kind} onClick={() => choose(k)}>
                  {words[k]}
                </button>
              ))}
            </div>
            {kind === "simple" && !simpleOf(draft.spec) && <p class="note">The timing is more than days and times. A change here replaces it.</p>}
            <Form key={kind} spec={draft.spec} onChange={(spec) => change({ spec })} error={error} />
            {kind !== "json" && <Zone spec={draft.spec} onChange={(spec) => change({ spec })} error={error} />}
            {kind !== "json" && (
              <Field label="Jitter" hint="A duration over which ticks of the same minute are spread. Empty: none." wrong={complaint(error, "/spec/jitter")}>
                {(p) => (
                  <input {...p} value={draft.spec.jitter ?? ""} placeholder="0s" spellcheck={false} onInput={(e) => change({ spec: { ...draft.spec, jitter: e.currentTarget.value || undefined } })} />
                )}
              </Field>
            )}
          </Panel>
          <Panel title="What is sent">
            {payloads.value ? (
              <Field label="Payload" hint="Any JSON. It is stored and sent byte for byte." wrong={badPayload}>
                {(p) => <textarea {...p} rows={6} spellcheck={false} value={draft.payload} placeholder="{}" onInput={(e) => change({ payload: e.currentTarget.value })} />}
              </Field>
            ) : (
              <p class="dim">{refused("schedules:read") || "Your key shows no payloads."}</p>
            )}
            <Field label="Labels" hint="One a line: plan: pro">
              {(p) => <textarea {...p} rows={2} class="short" spellcheck={false} value={draft.labels} onInput={(e) => change({ labels: e.currentTarget.value })} />}
            </Field>
            <Field label="Note">{(p) => <input {...p} value={draft.note} maxLength={1000} onInput={(e) => change({ note: e.currentTarget.value })} />}</Field>
          </Panel>
          <details class="panel">
            <summary>Policies and delivery</summary>
            <div class="body">
              <Policies of={draft} onChange={change} error={error} unset="as the workflow says" />
            </div>
          </details>
        </div>
        <PreviewPanel draft={draft} preview={preview} />
      </div>
      {saving && <Save first={first} draft={draft} etag={etag} onClose={() => save(false)} />}
    </>
  );
}

function Names({ draft, onChange }: { draft: Draft; onChange: (part: Partial<Draft>) => void }) {
  return (
    <Panel title="Name">
      <div class="two">
        <Field label="Workflow" hint="The work to run. A new name makes one that workers pull.">
          {(p) => <input {...p} value={draft.workflow} spellcheck={false} autocomplete="off" onInput={(e) => onChange({ workflow: e.currentTarget.value })} />}
        </Field>
        <Field label="Key" hint="Names this schedule of the workflow, such as user_123.">
          {(p) => <input {...p} value={draft.key} spellcheck={false} autocomplete="off" onInput={(e) => onChange({ key: e.currentTarget.value })} />}
        </Field>
      </div>
      <Field label="Subject" hint="The person or thing that it is for. Empty: the key.">
        {(p) => <input {...p} value={draft.subject} spellcheck={false} autocomplete="off" onInput={(e) => onChange({ subject: e.currentTarget.value })} />}
      </Field>
    </Panel>
  );
}

function payloadFault(text: string): string {
  if (!text.trim()) return "";
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return (error as Error).message;
  }
}

/** Shows what changes, and saves it. If somebody else was faster, it shows theirs too. */
function Save({ first, draft, etag, onClose }: { first: Draft; draft: Draft; etag: string; onClose: () => void }) {
  const { route } = useLocation();
  const name = { workflow: draft.workflow, key: draft.key };
  const { rival: theirs, save } = useRival<Schedule>(etag, () => call("get", at, { path: name }) as Promise<Got<Schedule>>);
  const send = async () => {
    await save((condition) => call("put", at, { path: name, body: new Text(bodyOf(draft)), ...condition }));
    toast(etag ? "Saved." : `${name.workflow}/${name.key} is made.`);
    await refresh(["schedule", name.workflow, name.key]);
    await refresh(["schedules"]);
    route(scheduleLink(name.workflow, name.key));
  };
  return (
    <Dialog wide title={etag ? "Save the change" : "Make the schedule"} verb={theirs ? "Replace theirs" : etag ? "Save" : "Make it"} danger={theirs !== null} onClose={onClose} onSend={send}>
      {theirs && (
        <div class="note amber stack">
          <p>
            <strong>Theirs:</strong> version {theirs.value.version} by {theirs.value.updated_by}, <Clock at={theirs.value.updated_at} relative />
          </p>
          <Diff before={definition(first)} after={definition(draftOf(theirs.value))} />
        </div>
      )}
      {theirs && <h3>Yours</h3>}
      {etag || theirs ? (
        <Diff before={definition(first)} after={definition(draft)} same={first.payload === draft.payload ? "Nothing has changed." : "Only the payload has changed."} />
      ) : (
        <Diff before={{}} after={definition(draft)} />
      )}
      {first.payload !== draft.payload && (etag || theirs) && <Diff before={{ payload: first.payload }} after={{ payload: draft.payload }} />}
    </Dialog>
  );
}
