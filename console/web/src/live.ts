import { computed, signal } from "@preact/signals";
import type { Problem } from "./call";

/** Whether the page follows the server. While it is false nothing on the page changes by itself. */
export const live = signal(true);

const visible = signal(!document.hidden);
document.addEventListener("visibilitychange", () => {
  visible.value = !document.hidden;
});

/** Whether the page reads again by itself: it is live, and can be seen. */
export const following = computed(() => live.value && visible.value);

/** The server's clock minus the browser's, in ms. */
const ahead = signal(0);

let known = false;

/** Takes the server's clock from a Date header, which has whole seconds. */
export function heard(date: string | null, began: number) {
  const at = date ? Date.parse(date) : Number.NaN;
  if (Number.isNaN(at)) return;
  const skew = at + 500 - (began + Date.now()) / 2;
  if (!known || Math.abs(skew - ahead.peek()) > 1500) {
    ahead.value = Math.abs(skew) < 1000 ? 0 : skew;
    known = true;
  }
}

/** The server's time in ms. */
export const now = () => Date.now() + ahead.peek();

/** A second's tick of the server's clock, for countdowns. It stands still while the page is paused. */
export const second = signal(Math.floor(Date.now() / 1000));

setInterval(() => {
  if (following.peek()) second.value = Math.floor(now() / 1000);
}, 1000);

/** Why the server makes us wait, and until when. */
export const waiting = signal<{ until: number; detail: string } | null>(null);

/** Shows the band for a 429 or a 503, and notices a session that has ended. */
export function waits(problem: Problem) {
  if (problem.status === 429 || problem.status === 503) {
    waiting.value = { until: now() + Math.max(1, problem.retryAfter) * 1000, detail: problem.detail };
  }
  if (problem.status === 401) ended.value = true;
}

/** Whether a request was answered 401: the session has ended. */
export const ended = signal(false);
