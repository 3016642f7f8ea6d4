import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Problem as Refusal } from "../call";
import { refused, type Scope } from "../session";
import { toast } from "../toast";

interface ActionProps {
  children: ComponentChildren;
  onClick?: () => void;
  /** The action needs it: without it the button is disabled and tells why. */
  scope?: Scope;
  /** Why the action cannot be taken now; "" or absent: it can. */
  why?: string;
  kind?: "main" | "danger" | "quiet" | "main danger" | "icon" | "quiet icon";
  type?: "button" | "submit";
  label?: string;
  href?: string;
  /** Its own shortcut, such as ".". */
  keys?: string;
}

/** A button or a link that takes an action. It stays in the order of the keyboard when it is disabled, and tells why. */
export function Action({ children, onClick, scope, why, kind, type = "button", label, href, keys }: ActionProps) {
  const id = useId();
  const reason = why || (scope ? refused(scope) : "");
  const css = `button ${kind ?? ""}`;
  if (href && !reason) {
    return (
      <a class={css} href={href} aria-label={label}>
        {children}
      </a>
    );
  }
  return (
    <>
      <button
        type={reason ? "button" : type}
        class={css}
        aria-disabled={reason ? "true" : undefined}
        aria-describedby={reason ? id : undefined}
        aria-label={label}
        aria-keyshortcuts={keys}
        title={reason || label}
        onClick={() => (reason ? toast(reason) : onClick?.())}
      >
        {children}
      </button>
      {reason && (
        <span class="hidden" id={id}>
          {reason}
        </span>
      )}
    </>
  );
}

/** A refusal of the server: what it says, its fields and the id of the request, with which its log is searched. */
export function Problem({ error, retry, fields = true }: { error: unknown; retry?: () => void; fields?: boolean }) {
  if (!error) return null;
  const p = error instanceof Refusal ? error : new Refusal(0, "page", String(error instanceof Error ? error.message : error));
  return (
    <div class="problem" role="alert">
      <strong>{p.detail}</strong>
      {fields && p.fields.length > 0 && (
        <ul>
          {p.fields.map((f) => (
            <li key={f.pointer + f.detail}>
              {f.pointer && <code>{f.pointer}</code>} {f.detail}
            </li>
          ))}
        </ul>
      )}
      {(p.requestId || p.code !== "page") && (
        <span class="id">
          {p.code}
          {p.requestId && (
            <>
              {" · request "}
              <code>{p.requestId}</code>
            </>
          )}
        </span>
      )}
      {retry && (
        <div class="buttons">
          <Action onClick={retry}>Try again</Action>
        </div>
      )}
    </div>
  );
}

/** Returns the server's complaint about a field of the body. */
export function complaint(error: unknown, pointer: string): string {
  return error instanceof Refusal
    ? error.fields
        .filter((f) => f.pointer === pointer || f.pointer.startsWith(`${pointer}/`))
        .map((f) => f.detail)
        .join("; ")
    : "";
}

interface FieldProps {
  label: string;
  hint?: ComponentChildren;
  wrong?: string;
  children: (props: { id: string; "aria-describedby"?: string; "aria-invalid"?: "true" }) => JSX.Element;
}

/** A labelled input with its hint and the complaint about it. */
export function Field({ label, hint, wrong, children }: FieldProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, "aria-describedby": hint || wrong ? `${id}-hint` : undefined, "aria-invalid": wrong ? "true" : undefined })}
      {(hint || wrong) && (
        <span id={`${id}-hint`} class={wrong ? "wrong" : "hint"}>
          {wrong || hint}
        </span>
      )}
    </div>
  );
}

/** A block with a heading. */
export function Panel({ title, tools, children, bare }: { title?: ComponentChildren; tools?: ComponentChildren; children: ComponentChildren; bare?: boolean }) {
  return (
    <section class="panel">
      {title && (
        <header>
          <h2>{title}</h2>
          {tools && <div class="buttons">{tools}</div>}
        </header>
      )}
      {bare ? children : <div class="body">{children}</div>}
    </section>
  );
}

/** The head of a page. It names the page in the window's title. */
export function Head({ title, sub, children }: { title: string; sub?: ComponentChildren; children?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${title} · Carillon`;
  }, [title]);
  return (
    <div class="page-head">
      <div class="title">
        <h1>
          <bdi>{title}</bdi>
        </h1>
        {sub && <div class="dim">{sub}</div>}
      </div>
      {children && <div class="buttons">{children}</div>}
    </div>
  );
}

/** Copies a text. */
export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, set] = useState(false);
  return (
    <Action
      kind="quiet"
      label={label === "Copy" ? undefined : label}
      onClick={() => {
        navigator.clipboard
          .writeText(text)
          .then(() => set(true))
          .catch(() => toast("The browser does not let the page copy."));
        setTimeout(() => set(false), 2000);
      }}
    >
      {done ? "Copied" : "Copy"}
    </Action>
  );
}

/** A command to paste. */
export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <pre>{text}</pre>
      <Copy text={text} />
    </div>
  );
}

interface EmptyProps {
  title: string;
  children?: ComponentChildren;
  curl?: string;
  cli?: string;
  action?: ComponentChildren;
}

/** What a page shows that has nothing to show: what belongs here, and how to make the first one. */
export function Empty({ title, children, curl, cli, action }: EmptyProps) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children && <p class="dim">{children}</p>}
      {action && <div class="buttons">{action}</div>}
      {curl && <Command text={curl} />}
      {cli && <Command text={cli} />}
    </div>
  );
}

/** A number as it is read: 1,200. */
export const many = (n: number | string) => Number(n).toLocaleString("en");

/** A rate in words. */
export const rateText = (rate: { per_second: number; ramp?: string | null }) => `${many(rate.per_second)} ticks a second${rate.ramp ? `, ramp ${rate.ramp}` : ""}`;

/** A number in a column. */
export function Figure({ of: n }: { of?: number | string }) {
  return n === undefined ? <span class="dim">–</span> : <span class="num">{many(n)}</span>;
}

/** Text of which nothing is known: a key, a note, an error. Marks of direction in it do not reach the rest of the page. */
export function Name({ children, mono }: { children: ComponentChildren; mono?: boolean }) {
  return <bdi class={mono ? "mono break" : "break"}>{children}</bdi>;
}

/** A menu that opens below its button. */
export function Menu({ label, children, text, kind }: { label: string; text?: ComponentChildren; kind?: string; children: ComponentChildren }) {
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const place = () => {
    const at = button.current?.getBoundingClientRect();
    const el = list.current;
    if (!at || !el) return;
    el.style.top = `${Math.min(at.bottom + 4, innerHeight - el.offsetHeight - 8)}px`;
    el.style.left = `${Math.max(8, Math.min(at.left, innerWidth - el.offsetWidth - 8))}px`;
  };
  return (
    <>
      <button ref={button} type="button" class={`button ${kind ?? ""}`} aria-label={text ? undefined : label} title={label} {...({ popovertarget: id } as object)}>
        {text ?? label}
      </button>
      <div ref={list} id={id} class="menu-list" {...({ popover: "auto" } as object)} onToggle={place} onClick={() => list.current?.hidePopover()}>
        {children}
      </div>
    </>
  );
}

/** Shows the children once the answer is here, and before that its problem or that it is read. */
export function Await<T>({ of, children }: { of: { data?: T; error: Error | null; refetch: () => unknown }; children: (value: T) => ComponentChildren }) {
  if (of.data !== undefined) {
    return (
      <>
        {of.error && <Problem error={of.error} retry={() => of.refetch()} />}
        {children(of.data)}
      </>
    );
  }
  return of.error ? (
    <Problem error={of.error} retry={() => of.refetch()} />
  ) : (
    <p class="skeleton" role="status">
      Reading…
    </p>
  );
}
