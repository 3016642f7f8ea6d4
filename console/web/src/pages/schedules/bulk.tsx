import { useState } from "preact/hooks";
import { type Answer, call } from "../../call";
import { Action, Field, Name, Problem } from "../../parts/basic";
import { Dialog } from "../../parts/dialog";
import { refresh, useQuery } from "../../query";
import { instantOf, mine } from "../../time";
import { toast } from "../../toast";
import { link } from "../../url";

type Verb = "pause" | "resume" | "skip" | "trigger" | "delete" | "retime";

const verbs: { verb: Verb; text: string; what: string; danger?: boolean }[] = [
  { verb: "pause", text: "Pause", what: "They stop firing until somebody resumes them, or until the time below." },
  { verb: "resume", text: "Resume", what: "They fire again from now on. Times that passed stay passed." },
  { verb: "skip", text: "Skip next", what: "Their next tick does not fire." },
  { verb: "trigger", text: "Fire once", what: "Each fires once, now. Its timing does not change." },
  { verb: "delete", text: "Delete", what: "They are deleted. Their ticks stay in the history for as long as ticks are kept.", danger: true },
];

interface Props {
  /** workflow/key of the selected rows. */
  selected: Set<string>;
  filter: Record<string, unknown>;
  rows: number;
  onDone: () => void;
  onClear: () => void;
}

/** What can be done with the selected schedules, or with all that match. */
export function Bulk({ selected, filter, rows, onDone, onClear }: Props) {
  const [all, takeAll] = useState(false);
  const [asked, ask] = useState<Verb | null>(null);
  if (selected.size === 0 && !all) {
    return rows > 0 ? (
      <div class="buttons dim">
        <span>Select rows, or</span>
        <Action kind="quiet" onClick={() => takeAll(true)}>
          {filter.all ? "all schedules" : "all that match"}
        </Action>
      </div>
    ) : null;
  }
  const of = all ? { filter } : { keys: [...selected] };
  return (
    <div class="buttons" role="toolbar" aria-label="Selected schedules">
      <strong>{all ? (filter.all ? "All schedules" : "All that match") : `${selected.size} selected`}</strong>
      {verbs.map((v) => (
        <Action key={v.verb} scope="schedules:write" kind={v.danger ? "danger" : undefined} onClick={() => ask(v.verb)}>
          {v.text}
        </Action>
      ))}
      <Action
        kind="quiet"
        onClick={() => {
          takeAll(false);
          onClear();
        }}
      >
        Clear
      </Action>
      {asked && (
        <Ask
          verb={asked}
          of={of}
          onClose={() => ask(null)}
          onSent={() => {
            takeAll(false);
            onDone();
          }}
        />
      )}
    </div>
  );
}

/** Shows what the action would do, and does it once the number was typed. */
function Ask({ verb, of, onClose, onSent }: { verb: Verb; of: object; onClose: () => void; onSent: () => void }) {
  const { text, what, danger } = verbs.find((v) => v.verb === verb) ?? verbs[0];
  const [note, setNote] = useState("");
  const [until, setUntil] = useState("");
  const [typed, type] = useState("");
  const body = { action: verb, ...of, ...(note ? { note } : {}), ...(until ? { until: instantOf(until, mine) } : {}) };
  const plan = useQuery({
    key: ["bulk", verb, of],
    fn: async (signal) =>
      (await call("post", "/v1/schedules/actions", { body: { ...body, dry_run: true } as never, signal })).value as Answer<"/v1/schedules/actions", "post"> & {
        matched: number;
        changed: number;
        sample: { workflow: string; key: string; reading: string }[];
      },
  });
  const n = plan.data?.changed ?? 0;
  const why = !plan.data ? "The number is being read." : n === 0 ? "It would change nothing." : n > 1 && typed.replaceAll(",", "") !== String(n) ? `Type ${n} first.` : "";
  return (
    <Dialog
      title={`${text}: many schedules`}
      verb={`${text} ${n.toLocaleString("en")}`}
      danger={danger}
      why={why}
      onClose={onClose}
      onSend={async (intent) => {
        const got = await call("post", "/v1/schedules/actions", { body: body as never, intent });
        const op = (got.value as unknown as { operation?: { id: string } }).operation;
        toast(`${text}: begun for ${n.toLocaleString("en")} schedules.`, op && { href: link("operations", op.id), text: "Follow it" });
        onSent();
        refresh(["schedules"]);
      }}
    >
      <p>{what}</p>
      <Problem error={plan.error} retry={() => plan.refetch()} />
      {plan.data && (
        <>
          <p>
            <strong class="num">{n.toLocaleString("en")}</strong> of {plan.data.matched.toLocaleString("en")} schedules would change.
          </p>
          <ul class="dim">
            {plan.data.sample.slice(0, 5).map((s) => (
              <li key={s.workflow + s.key}>
                {s.workflow} / <Name>{s.key}</Name>
              </li>
            ))}
            {n > 5 && <li>… and {(n - Math.min(5, plan.data.sample.length)).toLocaleString("en")} more</li>}
          </ul>
        </>
      )}
      {verb === "pause" && (
        <>
          <Field label="Why" hint="Everyone who looks at one of them sees it.">
            {(p) => <input {...p} value={note} maxLength={1024} onInput={(e) => setNote(e.currentTarget.value)} />}
          </Field>
          <Field label="Until" hint={`Empty: until somebody resumes them. By the clock of ${mine}.`}>
            {(p) => <input {...p} type="datetime-local" value={until} onInput={(e) => setUntil(e.currentTarget.value)} />}
          </Field>
        </>
      )}
      {n > 1 && <Field label={`Type ${n} to confirm`}>{(p) => <input {...p} inputMode="numeric" autocomplete="off" value={typed} onInput={(e) => type(e.currentTarget.value)} />}</Field>}
    </Dialog>
  );
}
