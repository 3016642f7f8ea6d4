import { useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { type Answer, call, type Got } from "../../call";
import { complaint, Field, Problem } from "../../parts/basic";
import { Confirm, Dialog } from "../../parts/dialog";
import { refresh, useQuery } from "../../query";
import { instantOf, mine, zones } from "../../time";
import { toast } from "../../toast";
import { link } from "../../url";
import { type Window, windows } from "./quiet";
import type { Receipt } from "./subject";

interface Props {
  subject: string;
  onClose: () => void;
}

const followed = (operation?: { id: string }) => operation && { href: link("operations", operation.id), text: "Follow it" };

/** Changes the zone and the quiet hours of a subject. */
export function Profile({ subject, stored, onClose }: Props & { stored: Got<Answer<"/v1/subjects/{subject}">> | null }) {
  const [zone, setZone] = useState(stored?.value.timezone ?? "");
  const [quiet, setQuiet] = useState<Window[]>(windows(stored?.value.quiet_hours ?? null));
  const [error, fail] = useState<unknown>(null);
  const change = (i: number, member: Partial<Window>) => setQuiet(quiet.map((w, n) => (n === i ? { ...w, ...member } : w)));
  return (
    <Dialog
      title="Zone and quiet hours"
      verb="Save"
      onClose={onClose}
      onSend={async () => {
        try {
          const got = await call("put", "/v1/subjects/{subject}", {
            path: { subject },
            body: { timezone: zone, ...(quiet.length > 0 ? { quiet_hours: quiet.map(cleaned) } : {}), labels: stored?.value.labels ?? {} } as never,
            ...(stored ? { ifMatch: stored.etag } : { ifNoneMatch: "*" }),
          });
          const operation = (got.value as { operation?: { id: string } }).operation;
          toast(operation ? "Saved. An operation retimes its schedules." : "Saved. Its schedules are retimed.", followed(operation));
          refresh();
        } catch (problem) {
          fail(problem);
          throw problem;
        }
      }}
    >
      <p class="dim">Schedules whose zone is @subject follow. A daily tick comes at most once in 20 hours: a new time that is sooner after the last one is skipped.</p>
      <Field label="Zone" wrong={complaint(error, "/timezone")}>
        {(p) => <input {...p} list="subject-zones" value={zone} onInput={(e) => setZone(e.currentTarget.value)} autocomplete="off" spellcheck={false} />}
      </Field>
      <datalist id="subject-zones">
        {(zones.value?.items ?? []).map((z) => (
          <option key={z.timezone} value={z.timezone} />
        ))}
      </datalist>
      {quiet.map((w, i) => (
        <fieldset class="buttons window" key={i}>
          <legend>Quiet window {i + 1}</legend>
          <input class="input" type="time" aria-label="from" value={w.from} onInput={(e) => change(i, { from: e.currentTarget.value })} />
          <input class="input" type="time" aria-label="to" value={w.to} onInput={(e) => change(i, { to: e.currentTarget.value })} />
          <select class="select" aria-label="then" value={w.then ?? "defer"} onChange={(e) => change(i, { then: e.currentTarget.value as Window["then"] })}>
            <option value="defer">hand out at its end</option>
            <option value="skip">skip</option>
          </select>
          <input class="input" aria-label="days" placeholder="every day, or 1-5" value={w.days ?? ""} onInput={(e) => change(i, { days: e.currentTarget.value })} />
          <button type="button" class="button quiet" onClick={() => setQuiet(quiet.filter((_, n) => n !== i))}>
            Remove
          </button>
        </fieldset>
      ))}
      <div class="buttons">
        <button type="button" class="button" onClick={() => setQuiet([...quiet, { from: "22:00", to: "07:00", then: "defer" }])}>
          Add quiet hours
        </button>
      </div>
    </Dialog>
  );
}

const cleaned = ({ days, ...w }: Window): Window => (days ? { ...w, days } : w);

/** Moves schedules and history to another name. */
export function Rename({ subject, onClose }: Props) {
  const [to, type] = useState("");
  const [error, fail] = useState<unknown>(null);
  const { route } = useLocation();
  return (
    <Dialog
      title="Rename the subject"
      verb="Rename"
      why={to ? "" : "Type the new name first."}
      onClose={onClose}
      onSend={async (intent) => {
        try {
          await call("post", "/v1/subjects/{subject}/rename", { path: { subject }, body: { to }, intent });
        } catch (problem) {
          fail(problem);
          throw problem;
        }
        toast(`Renamed to ${to}.`);
        refresh();
        route(link("subjects", to));
      }}
    >
      <p>Its schedules in all workflows, its profile and its history move to the new name. Keys never change.</p>
      <Field label="New name" wrong={complaint(error, "/to")}>
        {(p) => <input {...p} value={to} onInput={(e) => type(e.currentTarget.value)} autocomplete="off" spellcheck={false} />}
      </Field>
    </Dialog>
  );
}

/** Pauses the schedules of a subject in all workflows. */
export function PauseAll({ subject, onClose }: Props) {
  const [note, setNote] = useState("");
  const [until, setUntil] = useState("");
  const filter = { subject };
  const plan = useQuery({
    key: ["subject-pause", subject],
    fn: async (signal) => (await call("post", "/v1/schedules/actions", { body: { action: "pause", filter, dry_run: true } as never, signal })).value as unknown as { changed: number; matched: number },
  });
  return (
    <Dialog
      title="Pause all its schedules"
      verb={`Pause ${plan.data?.changed ?? ""}`}
      why={!plan.data ? "The number is being read." : plan.data.changed === 0 ? "None of them is active." : ""}
      onClose={onClose}
      onSend={async (intent) => {
        const got = await call("post", "/v1/schedules/actions", {
          body: { action: "pause", filter, ...(note ? { note } : {}), ...(until ? { until: instantOf(until, mine) } : {}) } as never,
          intent,
        });
        toast("The pause has begun.", followed((got.value as { operation?: { id: string } }).operation));
        refresh();
      }}
    >
      <Problem error={plan.error} retry={() => plan.refetch()} />
      {plan.data && (
        <p>
          <strong>{plan.data.changed}</strong> of {plan.data.matched} schedules are paused. The operation can be undone exactly.
        </p>
      )}
      <Field label="Why">{(p) => <input {...p} value={note} maxLength={1024} onInput={(e) => setNote(e.currentTarget.value)} />}</Field>
      <Field label="Until" hint={`Empty: until somebody resumes them. By the clock of ${mine}.`}>
        {(p) => <input {...p} type="datetime-local" value={until} onInput={(e) => setUntil(e.currentTarget.value)} />}
      </Field>
    </Dialog>
  );
}

/** Deletes the schedules of a subject, and cancels its ticks. */
export function Cancel({ subject, onClose }: Props) {
  return (
    <Confirm
      title="Cancel all that is planned"
      verb="Cancel all"
      type={subject}
      onClose={onClose}
      onSend={async (intent) => {
        const got = await call("post", "/v1/subjects/{subject}/cancel", { path: { subject }, body: {}, intent });
        const done = got.value as { schedules?: number; ticks?: number; operation?: { id: string } };
        toast(done.operation ? "The cancellation has begun." : `${done.schedules} schedules deleted, ${done.ticks} ticks cancelled.`, followed(done.operation));
        refresh();
      }}
    >
      <p>Its schedules in all workflows are deleted, and its ticks that have not ended are cancelled. The profile and the history stay.</p>
    </Confirm>
  );
}

/** Erases everything that is stored of a subject. */
export function Erase({ subject, known, onErased, onClose }: Props & { known?: Answer<"/v1/subjects/{subject}/overview">; onErased: (r: Receipt) => void }) {
  return (
    <Confirm
      title="Erase the subject"
      verb="Erase for good"
      type={subject}
      onClose={onClose}
      onSend={async () => {
        const got = await call("delete", "/v1/subjects/{subject}", { path: { subject } });
        onErased(got.value as Receipt);
        toast("Erased. The receipt is on this page.");
        refresh();
      }}
    >
      <p>This cannot be undone. It erases:</p>
      <ul>
        <li>{known?.profile ? "the profile with its zone and quiet hours" : "no profile: there is none"}</li>
        <li>{known ? `${known.schedules.length}${known.more ? " or more" : ""} schedules` : "its schedules"} with all revisions, also of deleted ones</li>
        <li>its ticks with payloads, results and attempts, and its dead letters</li>
        <li>kept answers and operations that name it</li>
      </ul>
      <p class="dim">The audit keeps who erased it, when, the counts, and a keyed hash of the name.</p>
    </Confirm>
  );
}
