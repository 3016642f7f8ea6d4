import type { Answer } from "../../call";
import type { OutcomeName } from "../../parts/outcome";

export type OverviewAnswer = Answer<"/v1/admin/overview">;
export type Bucket = Answer<"/v1/admin/series">["buckets"][number];

export const eventWords: Record<string, string> = {
  "workflow.late": "is later than its expectation",
  "workflow.silent": "had due ticks, and none succeeded,",
  "workflow.no_workers": "has ticks that wait, and no worker polls for them,",
};

/** The whole minute of an instant. */
export const minute = (ms: number) => new Date(Math.floor(ms / 60_000) * 60_000).toISOString().replace(".000Z", "Z");

/** The counts of a bucket by outcome. */
export function outcomesOf(b: Bucket): Partial<Record<OutcomeName, number>> {
  const skipped = Object.entries(b.skipped).reduce((sum, [reason, n]) => (reason === "missed" ? sum : sum + n), 0);
  return { succeeded: b.succeeded, failed: b.failed, skipped, missed: b.missed + (b.skipped.missed ?? 0), cancelled: b.cancelled };
}
