import { signal } from "@preact/signals";

export interface Told {
  id: number;
  text: string;
  href?: string;
  link?: string;
}

/** What the page tells at its edge. */
export const toasts = signal<Told[]>([]);

/** What a screen reader is told: at most one sentence in five seconds. */
export const said = signal("");

let last = 0;
let count = 0;

/** Tells that something is done. It goes away after eight seconds. */
export function toast(text: string, link?: { href: string; text: string }) {
  const id = ++count;
  toasts.value = [...toasts.value.slice(-3), { id, text, href: link?.href, link: link?.text }];
  const wait = Math.max(0, last + 5000 - Date.now());
  last = Date.now() + wait;
  setTimeout(() => {
    said.value = text;
  }, wait);
  setTimeout(() => hide(id), 8000);
}

/** Takes a toast away. */
export function hide(id: number) {
  toasts.value = toasts.value.filter((t) => t.id !== id);
}
