import type { ComponentChildren } from "preact";
import { Copy } from "./basic";

/** Writes a value as JSON, its numbers exactly as the server sent them. */
export const print = (value: unknown) => JSON.stringify(value, null, 2) ?? "null";

const token = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*)|\b(true|false|null)\b/g;

/** A value as JSON, with its strings and numbers in colour. It is text only, never markup. */
export function Json({ value, label = "JSON" }: { value: unknown; label?: string }) {
  const text = print(value);
  const parts: ComponentChildren[] = [];
  let last = 0;
  if (text.length < 100_000) {
    for (const m of text.matchAll(token)) {
      parts.push(text.slice(last, m.index));
      last = m.index + m[0].length;
      if (m[1]) parts.push(<bdi class={m[2] ? "key" : "string"}>{m[1]}</bdi>, m[2] ?? "");
      else parts.push(<span class={m[3] ? "number" : "key"}>{m[0]}</span>);
    }
  }
  parts.push(text.slice(last));
  return (
    <div class="command">
      <pre class="break" tabIndex={0} role="region" aria-label={label} dir="ltr">
        <code class="json-text">{parts}</code>
      </pre>
      <Copy text={text} />
    </div>
  );
}

export interface Change {
  pointer: string;
  before: unknown;
  after: unknown;
}

const isObject = (v: unknown): v is Record<string, unknown> => typeof v === "object" && v !== null && !("rawJSON" in v);

/** Compares two values, and returns what differs by JSON pointer. */
export function differences(before: unknown, after: unknown, pointer = ""): Change[] {
  if (isObject(before) && isObject(after) && Array.isArray(before) === Array.isArray(after)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
    return names.flatMap((n) => differences(before[n], after[n], `${pointer}/${n.replaceAll("~", "~0").replaceAll("/", "~1")}`));
  }
  return JSON.stringify(before) === JSON.stringify(after) ? [] : [{ pointer: pointer || "/", before, after }];
}

const cell = (v: unknown) => (v === undefined ? "–" : typeof v === "string" ? v : print(v));

/** What differs between two values. */
export function Diff({ before, after, same = "Nothing differs." }: { before: unknown; after: unknown; same?: string }) {
  const changes = differences(before, after);
  if (changes.length === 0) return <p class="dim">{same}</p>;
  return (
    <div class="diff">
      {changes.map((c) => (
        <div class="row" key={c.pointer}>
          <code class="break">{c.pointer}</code>
          <del>
            <span class="hidden">before: </span>
            <pre>− {cell(c.before)}</pre>
          </del>
          <ins>
            <span class="hidden">after: </span>
            <pre>+ {cell(c.after)}</pre>
          </ins>
        </div>
      ))}
    </div>
  );
}
