import { useState } from "preact/hooks";
import { complaint, Field } from "../../parts/basic";
import { zones } from "../../time";
import { cronOf, fieldAt, type Spec, simpleOf } from "./draft";

export interface FormProps {
  spec: Spec;
  onChange: (spec: Spec) => void;
  error: unknown;
}

const days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const kinds = ["cron", "calendars", "intervals", "rrule", "at", "relative"] as const;

/** The spec with another kind of timing instead of all that it has. What is beside the timing stays. */
export function replaced(spec: Spec, by: Partial<Spec>): Spec {
  const kept = Object.fromEntries(Object.entries(spec).filter(([name]) => !(kinds as readonly string[]).includes(name)));
  return { ...kept, ...by };
}

/** The time zone. The server says which there are. */
export function Zone({ spec, onChange, error }: FormProps) {
  const zone = spec.timezone ?? "UTC";
  return (
    <Field label="Time zone" hint="@subject follows the profile of the subject, and its quiet hours." wrong={complaint(error, "/spec/timezone")}>
      {(p) => (
        <>
          <input {...p} value={zone} list="zones" spellcheck={false} autocomplete="off" onInput={(e) => onChange({ ...spec, timezone: e.currentTarget.value })} />
          <datalist id="zones">
            <option value="@subject" />
            {(zones.value?.items ?? []).map((z) => (
              <option key={z.timezone} value={z.timezone} />
            ))}
          </datalist>
        </>
      )}
    </Field>
  );
}

export function SimpleForm({ spec, onChange, error }: FormProps) {
  const simple = simpleOf(spec) ?? { days: [1, 2, 3, 4, 5], times: ["08:00"] };
  const set = (next: typeof simple) => onChange(replaced(spec, { cron: cronOf(next) }));
  const toggle = (d: number) => {
    const next = simple.days.includes(d) ? simple.days.filter((x) => x !== d) : [...simple.days, d].sort((a, b) => a - b);
    if (next.length) set({ ...simple, days: next });
  };
  return (
    <>
      <fieldset class="days">
        <legend>Days</legend>
        {[1, 2, 3, 4, 5, 6, 0].map((d) => (
          <label key={d} class={simple.days.includes(d) ? "day on" : "day"}>
            <input type="checkbox" class="hidden" checked={simple.days.includes(d)} onChange={() => toggle(d)} />
            {days[d]}
          </label>
        ))}
      </fieldset>
      <fieldset class="times">
        <legend>Times</legend>
        {simple.times.map((t, i) => (
          <span class="filter" key={i}>
            <input
              type="time"
              aria-label={`time ${i + 1}`}
              value={t}
              required
              onInput={(e) => e.currentTarget.value && set({ ...simple, times: simple.times.map((x, n) => (n === i ? e.currentTarget.value : x)) })}
            />
            {simple.times.length > 1 && (
              <button type="button" aria-label={`Remove ${t}`} onClick={() => set({ ...simple, times: simple.times.filter((_, n) => n !== i) })}>
                ×
              </button>
            )}
          </span>
        ))}
        <button type="button" class="button quiet" onClick={() => set({ ...simple, times: [...simple.times, "12:00"] })}>
          + time
        </button>
      </fieldset>
      {complaint(error, "/spec/cron") && <p class="problem">{complaint(error, "/spec/cron")}</p>}
    </>
  );
}

export function CronForm({ spec, onChange, error }: FormProps) {
  const text = typeof spec.cron === "string" ? spec.cron : (spec.cron ?? []).join("\n");
  const [caret, move] = useState(0);
  const follow = (e: { currentTarget: HTMLTextAreaElement }) => move(e.currentTarget.selectionStart);
  const field = fieldAt(text, caret);
  return (
    <Field
      label="Cron, one expression a line"
      hint={field ? `At the caret: ${field}` : "Five fields; six with seconds first, seven with a year last. H spreads by the key."}
      wrong={complaint(error, "/spec/cron")}
    >
      {(p) => (
        <textarea
          {...p}
          rows={4}
          spellcheck={false}
          value={text}
          onInput={(e) => {
            follow(e);
            onChange({ ...replaced(spec, {}), cron: e.currentTarget.value.split("\n") });
          }}
          onKeyUp={follow}
          onClick={follow}
          onFocus={follow}
        />
      )}
    </Field>
  );
}

export function IntervalForm({ spec, onChange, error }: FormProps) {
  const one = spec.intervals?.[0] ?? { every: "1h" };
  const set = (changed: object) =>
    onChange(replaced(spec, { intervals: [Object.fromEntries(Object.entries({ ...one, ...changed }).filter(([, v]) => v !== "")) as never, ...(spec.intervals ?? []).slice(1)] }));
  return (
    <>
      <Field label="Every" hint="Such as 30s, 5m, 1h30m, 1d." wrong={complaint(error, "/spec/intervals/0/every")}>
        {(p) => <input {...p} value={one.every} spellcheck={false} onInput={(e) => set({ every: e.currentTarget.value })} />}
      </Field>
      <Field label="Offset" hint="Empty: none." wrong={complaint(error, "/spec/intervals/0/offset")}>
        {(p) => <input {...p} value={one.offset ?? ""} spellcheck={false} onInput={(e) => set({ offset: e.currentTarget.value })} />}
      </Field>
      <Field label="Counted from" hint="fixed_delay waits for the end of the tick before.">
        {(p) => (
          <select {...p} value={one.mode ?? ""} onChange={(e) => set({ mode: e.currentTarget.value })}>
            <option value="">whole multiples since 1970 (aligned)</option>
            <option value="fixed_rate">when it was made (fixed_rate)</option>
            <option value="fixed_delay">the end of the tick before (fixed_delay)</option>
          </select>
        )}
      </Field>
    </>
  );
}

const parts = ["day_of_month", "month", "day_of_week", "hour", "minute", "second", "year"] as const;

export function CalendarForm({ spec, onChange, error }: FormProps) {
  const one = (spec.calendars?.[0] ?? { hour: "8", minute: "0" }) as Record<string, string>;
  const set = (name: string, value: string) => {
    const next = Object.fromEntries(Object.entries({ ...one, [name]: value }).filter(([, v]) => v !== ""));
    onChange(replaced(spec, { calendars: [next, ...(spec.calendars ?? []).slice(1)] }));
  };
  return (
    <div class="two">
      {parts.map((name) => (
        <Field key={name} label={name.replaceAll("_", " ")} wrong={complaint(error, `/spec/calendars/0/${name}`)}>
          {(p) => <input {...p} value={one[name] ?? ""} spellcheck={false} placeholder={["hour", "minute", "second"].includes(name) ? "0" : "any"} onInput={(e) => set(name, e.currentTarget.value)} />}
        </Field>
      ))}
    </div>
  );
}

export function RuleForm({ spec, onChange, error }: FormProps) {
  return (
    <Field label="RFC 5545 lines" hint="DTSTART, RRULE, RDATE and EXDATE." wrong={complaint(error, "/spec/rrule")}>
      {(p) => (
        <textarea
          {...p}
          rows={5}
          spellcheck={false}
          value={spec.rrule ?? ""}
          placeholder={"DTSTART;TZID=America/New_York:20260105T090000\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE"}
          onInput={(e) => onChange(replaced(spec, { rrule: e.currentTarget.value }))}
        />
      )}
    </Field>
  );
}

export function JSONForm({ spec, onChange, error }: FormProps) {
  const [text, type] = useState(() => JSON.stringify(spec, null, 2));
  const [wrong, blame] = useState("");
  return (
    <Field label="Spec as JSON" wrong={wrong || complaint(error, "/spec")}>
      {(p) => (
        <textarea
          {...p}
          rows={14}
          spellcheck={false}
          value={text}
          onInput={(e) => {
            type(e.currentTarget.value);
            try {
              onChange(JSON.parse(e.currentTarget.value));
              blame("");
            } catch (problem) {
              blame((problem as Error).message);
            }
          }}
        />
      )}
    </Field>
  );
}
