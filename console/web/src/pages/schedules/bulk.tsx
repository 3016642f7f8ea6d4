import { useState } from "preact/hooks";
import { Action, Field } from "../../parts/basic";
import { Many } from "../../parts/many";
import { instantOf, mine } from "../../time";

type Verb = "pause" | "resume" | "skip" | "trigger" | "delete";

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

/** What the action says besides, and what it would do. */
function Ask({ verb, of, onClose, onSent }: { verb: Verb; of: object; onClose: () => void; onSent: () => void }) {
  const { text, what, danger } = verbs.find((v) => v.verb === verb) ?? verbs[0];
  const [note, setNote] = useState("");
  const [until, setUntil] = useState("");
  return (
    <Many
      title={`${text}: many schedules`}
      verb={text}
      danger={danger}
      plan={{ action: verb, ...of }}
      more={{ ...(note ? { note } : {}), ...(until ? { until: instantOf(until, mine) } : {}) }}
      onClose={onClose}
      onSent={onSent}
    >
      <p>{what}</p>
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
    </Many>
  );
}
