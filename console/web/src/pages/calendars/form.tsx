import { useState } from "preact/hooks";
import { call, type Got } from "../../call";
import { complaint, Field, Problem } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Dialog } from "../../parts/dialog";
import { useRival } from "../../parts/rival";
import { refresh, useQuery, useResting } from "../../query";
import { toast } from "../../toast";
import { changed, datedText, datesOf } from "./days";
import { Effects } from "./effects";
import type { Calendar } from "./page";
import "./style.css";

const at = "/v1/calendars/{calendar}" as const;

interface Props {
  stored?: Got<Calendar>;
  onClose: () => void;
  onSaved?: (name: string) => void;
}

/** Makes a calendar, or changes a stored one. The server shows by a dry run which days it would hold. */
export function Form({ stored: newest, onClose, onSaved }: Props) {
  const [stored] = useState(newest); // the page behind reads it again; the form saves a change of what it began with
  const [name, setName] = useState(stored?.value.name ?? "");
  const [text, type] = useState((stored?.value.dates ?? []).join("\n"));
  const [ics, setICS] = useState("");
  const body = useResting({ dates: datesOf(text), ...(ics.trim() ? { ics } : {}) }, 300);
  const plan = useQuery({
    key: ["calendar-plan", name, body],
    fn: async (signal) => (await call("put", at, { path: { calendar: name }, query: { dry_run: true }, body, signal })).value,
    on: name !== "",
    keep: true,
  });
  const { rival, save } = useRival<Calendar>(stored?.etag ?? "", () => call("get", at, { path: { calendar: name } }) as Promise<Got<Calendar>>);
  const before = rival?.value.dates ?? stored?.value.dates ?? [];
  const { added, removed } = changed(before, plan.data?.dates ?? []);
  const same = stored && plan.data && added.length + removed.length === 0;
  return (
    <Dialog
      wide
      title={stored ? `Change ${name}` : "New calendar"}
      verb={rival ? "Replace theirs" : "Save"}
      danger={rival !== null}
      why={!name ? "Name it first." : plan.error ? "The server refuses it as it is." : !plan.data || plan.isFetching ? "The server reads it." : same ? "Nothing differs." : ""}
      onClose={onClose}
      onSend={async () => {
        await save((condition) => call("put", at, { path: { calendar: name }, body, ...condition }));
        toast(`The calendar ${name} is saved.`);
        await refresh(["calendars"]);
        await refresh(["calendar", name]);
        onSaved?.(name);
      }}
    >
      {!stored && (
        <Field label="Name" hint="Specs name it, such as us-holidays." wrong={complaint(plan.error, "/calendar")}>
          {(p) => <input {...p} value={name} onInput={(e) => setName(e.currentTarget.value)} autocomplete="off" spellcheck={false} />}
        </Field>
      )}
      <Field label="Days" hint="One a line, such as 2026-12-25." wrong={complaint(plan.error, "/dates")}>
        {(p) => <textarea {...p} rows={6} value={text} onInput={(e) => type(e.currentTarget.value)} spellcheck={false} />}
      </Field>
      <Field
        label="Days of an iCalendar file"
        hint="Paste it, or choose a file. Its all-day events are added to the days above; those without end for ten years."
        wrong={complaint(plan.error, "/ics")}
      >
        {(p) => <textarea {...p} rows={3} class="short" value={ics} onInput={(e) => setICS(e.currentTarget.value)} placeholder="BEGIN:VCALENDAR" spellcheck={false} />}
      </Field>
      <Field label="File">{(p) => <input {...p} type="file" accept=".ics,text/calendar" onChange={(e) => e.currentTarget.files?.[0]?.text().then(setICS)} />}</Field>
      {rival && (
        <p class="note amber">
          <strong>Theirs:</strong> {rival.value.dates.length} days, by {rival.value.updated_by}, <Clock at={rival.value.updated_at} relative />. The change below is against theirs.
        </p>
      )}
      <Problem error={plan.error} fields={false} />
      {plan.data && !plan.error && name && (
        <div class="stack" role="status">
          <h3>
            It would hold {plan.data.dates.length.toLocaleString("en")} {plan.data.dates.length === 1 ? "day" : "days"}
          </h3>
          <Days head="Added" of={added} />
          <Days head="Removed" of={removed} />
        </div>
      )}
      {stored && plan.data && !same && <Effects name={name} after={plan.data.dates} added={added} removed={removed} />}
    </Dialog>
  );
}

function Days({ head, of }: { head: string; of: string[] }) {
  if (of.length === 0) return null;
  return (
    <p>
      <strong>
        {head} {of.length.toLocaleString("en")}:
      </strong>{" "}
      {of.slice(0, 12).map(datedText).join(", ")}
      {of.length > 12 && `, … and ${(of.length - 12).toLocaleString("en")} more`}
    </p>
  );
}
