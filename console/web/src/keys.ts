import { signal } from "@preact/signals";

type Handler = (key: string, event: KeyboardEvent) => boolean;

const handlers: Handler[] = [];

/** Whether single keys are shortcuts (WCAG 2.1.4). */
export const shortcuts = signal(
  (() => {
    try {
      return localStorage.getItem("shortcuts") !== "off";
    } catch {
      return true;
    }
  })(),
);

/** Switches single-key shortcuts on or off, also for the next visit. */
export function setShortcuts(on: boolean) {
  shortcuts.value = on;
  try {
    localStorage.setItem("shortcuts", on ? "on" : "off");
  } catch {
    // a browser without storage forgets the choice
  }
}

/** Adds a handler of keys that are typed outside of inputs. It returns whether it has used the key. The last one added is first. */
export function onKey(handler: Handler): () => void {
  handlers.push(handler);
  return () => handlers.splice(handlers.indexOf(handler), 1);
}

document.addEventListener("keydown", (e) => {
  const el = e.target as HTMLElement;
  const typing = el.closest("input:not([type=checkbox]), textarea, select, [contenteditable], dialog[open]");
  const command = (e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k";
  if (!command && (typing || e.ctrlKey || e.metaKey || e.altKey || !shortcuts.value)) return;
  if (e.key === "Enter" && el.closest("a, button")) return;
  const key = command ? "Ctrl-K" : e.key;
  for (const handler of [...handlers].reverse()) {
    if (handler(key, e)) {
      e.preventDefault();
      return;
    }
  }
});
