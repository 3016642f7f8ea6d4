import { useEffect, useRef, useState } from "preact/hooks";
import { useParams } from "../url";
import { Menu } from "./basic";

export interface Filter {
  name: string;
  label: string;
  /** The values to choose from; absent: a text. */
  values?: string[];
  /** Suggestions for a text. */
  suggest?: string[];
  /** It is shown also when it is not set. */
  always?: boolean;
  hint?: string;
  type?: "text" | "datetime-local" | "date";
  /** The filters that it cannot be combined with: setting it removes them. */
  instead?: string[];
}

/** Filters as chips. Their values are in the address, so that a link keeps them. */
export function Filters({ of, label = "Filters" }: { of: Filter[]; label?: string }) {
  const [query, change] = useParams();
  const [opened, open] = useState<string[]>([]);
  const shown = of.filter((f) => f.always || query[f.name] || opened.includes(f.name));
  const rest = of.filter((f) => !shown.includes(f));
  const set = (f: Filter, value: string) => {
    const without = value ? Object.fromEntries((f.instead ?? []).map((n) => [n, undefined])) : {};
    change({ ...without, [f.name]: value });
  };
  return (
    <div class="filters" role="search" aria-label={label}>
      {shown.map((f) => (
        <One
          key={f.name}
          filter={f}
          value={query[f.name] ?? ""}
          focus={opened.at(-1) === f.name}
          onSet={(v) => set(f, v)}
          onClose={() => {
            open(opened.filter((n) => n !== f.name));
            set(f, "");
          }}
        />
      ))}
      {rest.length > 0 && (
        <Menu label="Add a filter" text="+ filter" kind="quiet">
          {rest.map((f) => (
            <button type="button" class="button quiet" key={f.name} onClick={() => open([...opened, f.name])}>
              {f.label}
            </button>
          ))}
        </Menu>
      )}
    </div>
  );
}

interface OneProps {
  filter: Filter;
  value: string;
  focus: boolean;
  onSet: (value: string) => void;
  onClose: () => void;
}

/** A text waits for a pause in the typing before it is in the address. */
function One({ filter: f, value, focus, onSet, onClose }: OneProps) {
  const [text, type] = useState(value);
  const timer = useRef(0);
  const el = useRef<HTMLInputElement & HTMLSelectElement>(null);
  useEffect(() => type(value), [value]);
  useEffect(() => {
    if (focus) el.current?.focus();
  }, [focus]);
  const later = (v: string) => {
    type(v);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => onSet(v), 150);
  };
  return (
    <span class={value ? "filter set" : "filter"}>
      <span>{f.label}</span>
      {f.values ? (
        <select ref={el} aria-label={f.label} value={value} onChange={(e) => onSet(e.currentTarget.value)}>
          <option value="">any</option>
          {f.values.map((v) => (
            <option key={v} value={v}>
              {v}
            </option>
          ))}
        </select>
      ) : (
        <>
          <input
            ref={el}
            type={f.type ?? "text"}
            aria-label={f.label}
            value={text}
            placeholder={f.hint}
            list={f.suggest ? `list-${f.name}` : undefined}
            onInput={(e) => later(e.currentTarget.value)}
            spellcheck={false}
            autocomplete="off"
          />
          {f.suggest && (
            <datalist id={`list-${f.name}`}>
              {f.suggest.map((s) => (
                <option key={s} value={s} />
              ))}
            </datalist>
          )}
        </>
      )}
      {(value || !f.always) && (
        <button type="button" aria-label={`Remove ${f.label}`} onClick={onClose}>
          ×
        </button>
      )}
    </span>
  );
}
