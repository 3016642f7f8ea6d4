import type { components } from "../../api.gen";

type Windows = components["schemas"]["Subject"]["quiet_hours"];
export type Window = components["schemas"]["QuietHours"];

/** The windows of quiet hours as a list. */
export function windows(of: Windows): Window[] {
  if (!of) return [];
  return Array.isArray(of) ? of : [of as Window];
}

/** Quiet hours in words. */
export function quietly(of: Windows): string {
  const all = windows(of);
  if (all.length === 0) return "none";
  return all.map((w) => `${w.from}–${w.to}${w.days ? ` on days ${w.days}` : ""}, then ${w.then ?? "defer"}`).join("; ");
}

const minute = (time: string) => Number(time.slice(0, 2)) * 60 + Number(time.slice(3, 5));

/** The day as a band of 24 hours on which the quiet ones are marked. */
export function QuietBand({ of }: { of: Windows }) {
  const parts = windows(of).flatMap((w) => {
    const [from, to] = [minute(w.from), minute(w.to)];
    return from < to
      ? [[from, to]]
      : [
          [from, 1440],
          [0, to],
        ];
  });
  return (
    <svg class="quiet-band" viewBox="0 0 1440 40" preserveAspectRatio="none" role="img" aria-label={`Quiet hours: ${quietly(of)}`}>
      <rect class="day" x="0" y="6" width="1440" height="18" rx="4" />
      {parts.map(([from, to]) => (
        <rect class="quiet" key={from} x={from} y="6" width={to - from} height="18" />
      ))}
      {[0, 6, 12, 18, 24].map((h) => (
        <line key={h} x1={h * 60} x2={h * 60} y1="24" y2="30" />
      ))}
    </svg>
  );
}
