import { useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { call } from "../../call";
import { now } from "../../live";
import { Action, Field, Menu } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Confirm, Dialog } from "../../parts/dialog";
import { instantOf, wall } from "../../time";
import { toast } from "../../toast";
import { link, scheduleLink } from "../../url";
import { Backfill } from "./backfill";
import { again, type Shown } from "./data";

const at = "/v1/workflows/{workflow}/schedules/{key}" as const;

type Verb = "" | "pause" | "resume" | "trigger" | "skip" | "move" | "backfill" | "delete";

/** What can be done with one schedule. */
export function Actions({ of }: { of: Shown }) {
  const [asked, ask] = useState<Verb>("");
  const { s, name } = of;
  const close = () => ask("");
  const idle = s.next_at ? "" : "No tick is to come.";
  const forms: Record<Exclude<Verb, "">, typeof Pause> = { pause: Pause, resume: Resume, trigger: Trigger, skip: Skip, move: Move, backfill: Backfill, delete: Delete };
  const Form = asked && forms[asked];
  return (
    <>
      {s.status === "paused" ? (
        <Action scope="schedules:write" onClick={() => ask("resume")}>
          Resume
        </Action>
      ) : (
        <Action scope="schedules:write" why={s.status === "active" ? "" : `It is ${s.status}.`} onClick={() => ask("pause")}>
          Pause
        </Action>
      )}
      <Action scope="schedules:write" onClick={() => ask("trigger")}>
        Fire once
      </Action>
      <Menu label="More actions" text="More">
        <Action kind="quiet" scope="schedules:write" why={idle} onClick={() => ask("skip")}>
          Skip next
        </Action>
        <Action kind="quiet" scope="schedules:write" why={idle} onClick={() => ask("move")}>
          Move next
        </Action>
        <Action kind="quiet" scope="schedules:write" onClick={() => ask("backfill")}>
          Backfill
        </Action>
        <Action kind="quiet" scope="schedules:write" onClick={() => ask("delete")}>
          Delete
        </Action>
      </Menu>
      <Action kind="main" scope="schedules:write" href={`${scheduleLink(name.workflow, name.key)}/edit`}>
        Edit
      </Action>
      {Form && <Form of={of} onClose={close} />}
    </>
  );
}

export interface FormProps {
  of: Shown;
  onClose: () => void;
}

function Pause({ of: { s, etag, name }, onClose }: FormProps) {
  const [note, write] = useState("");
  const [until, set] = useState("");
  const zone = s.timezone_in_force;
  return (
    <Dialog
      title="Pause"
      onClose={onClose}
      onSend={async (intent) => {
        await call("post", `${at}/pause`, { path: name, ifMatch: etag, intent, body: { ...(note ? { note } : {}), ...(until ? { until: instantOf(until, zone) } : {}) } });
        toast("Paused.");
        await again(name);
      }}
    >
      <p>It does not fire until somebody resumes it, or until the time below.</p>
      <Field label="Why" hint="Everyone who looks at the schedule sees it.">
        {(p) => <input {...p} value={note} maxLength={1000} onInput={(e) => write(e.currentTarget.value)} />}
      </Field>
      <Field label="Until" hint={`By the clock of ${zone}. Empty: until somebody resumes it.`}>
        {(p) => <input {...p} type="datetime-local" value={until} min={wall(now(), zone)} onInput={(e) => set(e.currentTarget.value)} />}
      </Field>
    </Dialog>
  );
}

function Resume({ of: { etag, name }, onClose }: FormProps) {
  const [once, set] = useState(false);
  return (
    <Dialog
      title="Resume"
      onClose={onClose}
      onSend={async (intent) => {
        await call("post", `${at}/resume`, { path: name, ifMatch: etag, intent, body: { fire_once: once } });
        toast("It fires again.");
        await again(name);
      }}
    >
      <p>It fires again from now on. Times that passed while it was paused stay passed.</p>
      <label class="check">
        <input type="checkbox" checked={once} onChange={(e) => set(e.currentTarget.checked)} />
        Fire once now, if a time was missed
      </label>
    </Dialog>
  );
}

function Trigger({ of: { s, name }, onClose }: FormProps) {
  const [later, set] = useState("");
  const zone = s.timezone_in_force;
  return (
    <Dialog
      title="Fire once"
      onClose={onClose}
      onSend={async (intent) => {
        const got = await call("post", `${at}/trigger`, { path: name, intent, body: later ? { at: `${later}:00` } : {} });
        toast(later ? "A tick waits for its time." : "A tick was made.", { href: link("ticks", (got.value as { tick_id: string }).tick_id), text: "Look at it" });
        await again(name);
      }}
    >
      <p>One extra tick with the schedule's payload. The timing of the schedule does not change.</p>
      <Field label="When" hint={`By the clock of ${zone}, at most 366 days from now. Empty: now.`}>
        {(p) => <input {...p} type="datetime-local" value={later} min={wall(now(), zone)} onInput={(e) => set(e.currentTarget.value)} />}
      </Field>
    </Dialog>
  );
}

function Skip({ of: { s, name }, onClose }: FormProps) {
  const [count, set] = useState("1");
  return (
    <Dialog
      title="Skip coming ticks"
      verb="Skip"
      onClose={onClose}
      onSend={async (intent) => {
        await call("post", `${at}/skip`, { path: name, intent, body: { count: Number(count) } });
        toast("They will not fire.");
        await again(name);
      }}
    >
      <p>
        The next is <Clock at={s.next_at} zone={s.timezone_in_force} local={s.next_local} />. A skipped tick appears in the history with its reason, and Now can take it back.
      </p>
      <Field label="How many">{(p) => <input {...p} type="number" min="1" max="1000" value={count} onInput={(e) => set(e.currentTarget.value)} />}</Field>
    </Dialog>
  );
}

function Move({ of: { s, name }, onClose }: FormProps) {
  const zone = s.timezone_in_force;
  const [from, choose] = useState(s.next_at ?? "");
  const [to, set] = useState(from ? wall(Date.parse(from), zone) : "");
  return (
    <Dialog
      title="Move a coming tick"
      verb="Move"
      why={to ? "" : "Choose a time first."}
      onClose={onClose}
      onSend={async (intent) => {
        await call("post", `${at}/reschedule`, { path: name, intent, body: { at: from, to: instantOf(to, zone) } });
        toast("Moved.");
        await again(name);
      }}
    >
      <Field label="Tick">
        {(p) => (
          <select {...p} value={from} onChange={(e) => choose(e.currentTarget.value)}>
            {s.upcoming.map((u) => (
              <option key={u} value={u}>
                {wall(Date.parse(u), zone).replace("T", " ")}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label="To" hint={`By the clock of ${zone}, between the ticks before and after it.`}>
        {(p) => <input {...p} type="datetime-local" step="1" value={to} onInput={(e) => set(e.currentTarget.value)} />}
      </Field>
    </Dialog>
  );
}

function Delete({ of: { etag, name }, onClose }: FormProps) {
  const { route } = useLocation();
  return (
    <Confirm
      title="Delete the schedule"
      verb="Delete"
      type={name.key}
      onClose={onClose}
      onSend={async () => {
        await call("delete", at, { path: name, ifMatch: etag });
        toast(`${name.workflow}/${name.key} is deleted.`);
        route(link("schedules"));
      }}
    >
      <p>It fires no more. Its ticks stay in the history for as long as ticks are kept.</p>
    </Confirm>
  );
}
