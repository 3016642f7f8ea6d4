import { useRef, useState } from "preact/hooks";
import type { components } from "../../api.gen";
import { call, type Got } from "../../call";
import { complaint, Field } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Dialog } from "../../parts/dialog";
import { Diff } from "../../parts/json";
import { useRival } from "../../parts/rival";
import { refresh } from "../../query";
import { Secret } from "./secret";
import "./style.css";

type Endpoint = components["schemas"]["Endpoint"];

const at = "/v1/endpoints/{name}" as const;

const events = [
  "tick.failed",
  "schedule.quarantined",
  "schedule.auto_paused",
  "schedule.completed",
  "endpoint.disabled",
  "quota.soft",
  "tzdata.retimed",
  "operation.ended",
  "workflow.late",
  "workflow.silent",
  "workflow.no_workers",
  "workflow.recovered",
  "api_key.expiring",
];

const headersOf = (text: string) =>
  Object.fromEntries(
    text
      .split("\n")
      .map((line) => [line.slice(0, line.indexOf(":")).trim(), line.slice(line.indexOf(":") + 1).trim()])
      .filter(([name]) => name),
  );

/** What a PUT of a stored endpoint would say. */
const bodyOf = ({ url, batch, headers, events, rate }: Endpoint) => ({ url, batch, headers, events, ...(rate ? { rate } : {}) });

interface Props {
  stored?: Got<Endpoint>;
  onClose: () => void;
  onSaved?: (e: Endpoint) => void;
}

/** Makes an endpoint, or changes a stored one. A new one shows its secret once. */
export function Form({ stored: newest, onClose, onSaved }: Props) {
  const [stored] = useState(newest); // the page behind reads it again; the form saves a change of what it began with
  const e = stored?.value;
  const [name, setName] = useState(e?.name ?? "");
  const [url, setURL] = useState(e?.url ?? "");
  const [batch, setBatch] = useState(String(e?.batch ?? 1));
  const [rate, setRate] = useState(e?.rate ? String(e.rate.per_second) : "");
  const [ramp, setRamp] = useState(e?.rate?.ramp ?? "");
  const [headers, setHeaders] = useState(
    Object.entries(e?.headers ?? {})
      .map(([n, v]) => `${n}: ${v}`)
      .join("\n"),
  );
  const [told, tell] = useState<string[]>(e?.events ?? []);
  const [error, fail] = useState<unknown>(null);
  const [made, show] = useState<Endpoint | null>(null);
  const secret = useRef(false); // the dialog closes with the functions of its last drawing
  const { rival, save } = useRival<Endpoint>(stored?.etag ?? "", () => call("get", at, { path: { name } }) as Promise<Got<Endpoint>>);
  const body = { url, batch: Number(batch), headers: headersOf(headers), events: told, ...(rate ? { rate: { per_second: Number(rate), ...(ramp ? { ramp } : {}) } } : {}) };
  const send = async () => {
    try {
      const got = await save((condition) => call("put", at, { path: { name }, body: body as never, ...condition }));
      const saved = got.value as Endpoint;
      refresh(["endpoints"]);
      refresh(["endpoint", name]);
      if (saved.secret) {
        secret.current = true;
        show(saved);
      }
      onSaved?.(saved);
    } catch (problem) {
      fail(problem);
      throw problem;
    }
  };
  if (made?.secret) return <Secret name={made.name} secret={made.secret} onClose={onClose} />;
  return (
    <Dialog
      title={stored ? `Change ${name}` : "New endpoint"}
      verb={rival ? "Replace theirs" : "Save"}
      danger={rival !== null}
      why={!name ? "Name it first." : !url ? "Give its address first." : ""}
      onClose={() => !secret.current && onClose()}
      onSend={send}
    >
      {!stored && (
        <Field label="Name" hint="Workflows name it, such as mailer." wrong={complaint(error, "/name")}>
          {(p) => <input {...p} value={name} onInput={(ev) => setName(ev.currentTarget.value)} autocomplete="off" spellcheck={false} />}
        </Field>
      )}
      <Field label="Address" hint="https on port 443 or 8443, on a public host." wrong={complaint(error, "/url")}>
        {(p) => <input {...p} type="url" value={url} onInput={(ev) => setURL(ev.currentTarget.value)} autocomplete="off" spellcheck={false} />}
      </Field>
      <div class="grid">
        <Field label="Ticks in a request" hint="1 to 500." wrong={complaint(error, "/batch")}>
          {(p) => <input {...p} type="number" min={1} max={500} value={batch} onInput={(ev) => setBatch(ev.currentTarget.value)} />}
        </Field>
        <Field label="Ticks a second" hint="Empty: no limit." wrong={complaint(error, "/rate")}>
          {(p) => <input {...p} type="number" min={1} value={rate} onInput={(ev) => setRate(ev.currentTarget.value)} />}
        </Field>
        <Field label="Ramp" hint="After a pause the rate rises over this long, such as 30s." wrong={complaint(error, "/rate/ramp")}>
          {(p) => <input {...p} value={ramp} disabled={!rate} onInput={(ev) => setRamp(ev.currentTarget.value)} spellcheck={false} />}
        </Field>
      </div>
      <Field label="Headers" hint="One a line, as Name: value. A stored value is shown as … and stays if you leave it so." wrong={complaint(error, "/headers")}>
        {(p) => <textarea {...p} rows={3} value={headers} onInput={(ev) => setHeaders(ev.currentTarget.value)} spellcheck={false} />}
      </Field>
      <fieldset class="endpoint-events">
        <legend>Events that it is told of</legend>
        {events.map((n) => (
          <label class="check" key={n}>
            <input type="checkbox" checked={told.includes(n)} onChange={(ev) => tell(ev.currentTarget.checked ? [...told, n] : told.filter((t) => t !== n))} />
            <code>{n}</code>
          </label>
        ))}
      </fieldset>
      {rival && (
        <>
          <p class="note amber">
            <strong>Theirs</strong> was saved <Clock at={rival.value.updated_at} relative />. The change below is against theirs.
          </p>
          <Diff before={bodyOf(rival.value)} after={body} />
        </>
      )}
    </Dialog>
  );
}
