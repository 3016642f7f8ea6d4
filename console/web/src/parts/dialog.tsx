import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { intent } from "../call";
import { Action, Problem } from "./basic";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
  /** The words of its button. */
  verb?: string;
  danger?: boolean;
  /** Why it cannot be sent yet. */
  why?: string;
  /** Sends it. A retry after a failure has the same intent, so that nothing happens twice. */
  onSend?: (intent: string) => Promise<unknown>;
}

/** A dialog. It closes by Escape, by a click beside it, and when it was sent. */
export function Dialog({ title, onClose, children, wide, verb, danger, why, onSend }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  const [key] = useState(intent);
  const [error, fail] = useState<unknown>(null);
  const [busy, work] = useState(false);
  useEffect(() => {
    ref.current?.showModal();
  }, []);
  const send = async (e: Event) => {
    e.preventDefault();
    if (busy || why || !onSend) return;
    work(true);
    fail(null);
    try {
      await onSend(key);
      onClose();
    } catch (problem) {
      fail(problem);
      work(false);
    }
  };
  return (
    <dialog ref={ref} class={wide ? "wide" : ""} aria-labelledby={id} onClose={onClose} {...({ closedby: "any" } as object)}>
      <form onSubmit={send}>
        <h2 id={id}>{title}</h2>
        {children}
        <Problem error={error} />
        <div class="buttons">
          <Action kind="quiet" onClick={() => ref.current?.close()}>
            {onSend ? "Cancel" : "Close"}
          </Action>
          {onSend && (
            <Action type="submit" kind={danger ? "main danger" : "main"} why={why || (busy ? "It is being sent." : "")}>
              {busy ? "Sending…" : (verb ?? title)}
            </Action>
          )}
        </div>
      </form>
    </dialog>
  );
}

interface DeletionProps {
  name: string;
  onClose: () => void;
  /** Deletes it, and leads on. */
  onSend: () => Promise<unknown>;
  /** What becomes of the rest. */
  children: ComponentChildren;
}

/** The question before something with a name is deleted. */
export function Deletion({ name, ...rest }: DeletionProps) {
  return <Confirm title={`Delete ${name}`} verb="Delete it" type={name} {...rest} />;
}

interface ConfirmProps extends Omit<DialogProps, "why"> {
  /** What has to be typed before it can be sent. */
  type?: string;
}

/** A dialog before something that cannot be undone. */
export function Confirm({ type, children, ...rest }: ConfirmProps) {
  const [typed, set] = useState("");
  const id = useId();
  return (
    <Dialog {...rest} danger={rest.danger ?? true} why={type !== undefined && typed !== type ? `Type ${type} first.` : ""}>
      {children}
      {type !== undefined && (
        <div class="field">
          <label for={id}>
            Type <code class="break">{type}</code> to confirm
          </label>
          <input id={id} value={typed} onInput={(e) => set(e.currentTarget.value)} autocomplete="off" spellcheck={false} />
        </div>
      )}
    </Dialog>
  );
}
