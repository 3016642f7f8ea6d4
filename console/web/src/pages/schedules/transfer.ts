import { Problem, parse, send } from "../../call";
import { type Batch, batches } from "./batches";

export interface Bad {
  line: number;
  workflow: string;
  key: string;
  error: { code: string; detail: string };
}

const none = { inserted: 0, updated: 0, unchanged: 0, duplicates: 0, errors: 0 };

export interface Sum extends Record<keyof typeof none, number> {
  read: number;
  bad: Bad[];
}

export const nothing: Sum = { ...none, read: 0, bad: [] };

const mostBad = 1000; // that are kept to be shown

/** Sends one batch, again if the server asks to wait, and returns the bad lines and the counts. */
async function upsert(batch: Batch, dryRun: boolean, signal: AbortSignal) {
  const url = `/v1/schedules/bulk?results=errors${dryRun ? "&dry_run=true" : ""}`;
  for (let attempt = 1; ; attempt++) {
    try {
      const answer = await send(url, "POST", { "Content-Type": "application/x-ndjson" }, `${batch.lines.join("\n")}\n`, signal);
      const lines = (await answer.text())
        .split("\n")
        .filter(Boolean)
        .map((l) => parse(l) as { summary?: typeof none; error?: Bad["error"] });
      const end = lines.pop();
      if (!end?.summary) throw new Problem(0, "cut", end?.error?.detail ?? "The answer was cut. Lines before it are stored; send the file again.");
      return { bad: lines as unknown as Bad[], summary: end.summary };
    } catch (error) {
      const waits = error instanceof Problem && (error.status === 429 || error.status === 503) && attempt < 10;
      if (!waits) throw error;
      await new Promise((done) => setTimeout(done, Math.max(1, error.retryAfter) * 1000));
      signal.throwIfAborted();
    }
  }
}

/** Stores the schedules of a file, or tells what storing them would do. on is told after each batch. */
export async function importAll(file: Blob, dryRun: boolean, on: (sum: Sum) => void, signal: AbortSignal): Promise<Sum> {
  let sum = nothing;
  for await (const batch of batches(file)) {
    signal.throwIfAborted();
    const { bad, summary } = await upsert(batch, dryRun, signal);
    const counts = Object.fromEntries(Object.keys(none).map((n) => [n, sum[n as keyof typeof none] + Number(summary[n as keyof typeof none] ?? 0)])) as typeof none;
    const listed = bad.map((b) => ({ ...b, line: batch.first + Number(b.line) - 1 }));
    sum = { ...counts, read: batch.read, bad: [...sum.bad, ...listed].slice(0, mostBad) };
    on(sum);
  }
  return sum;
}

/** Reads all schedules, or those of a workflow, as lines. on is told how many lines and bytes are here. An answer that was cut is a Problem. */
export async function exportAll(workflow: string, on: (lines: number, bytes: number) => void, signal: AbortSignal): Promise<{ blob: Blob; lines: number }> {
  const url = `/v1/schedules/export${workflow ? `?${new URLSearchParams({ workflow })}` : ""}`;
  const answer = await send(url, "GET", { Accept: "application/x-ndjson" }, undefined, signal);
  const reader = (answer.body as ReadableStream<Uint8Array<ArrayBuffer>>).getReader();
  const parts: BlobPart[] = [];
  let [lines, bytes, loose] = [0, 0, 0];
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      for (const b of part.value) if (b === 10) lines++;
      bytes += part.value.length;
      loose += part.value.length;
      parts.push(part.value);
      if (loose > 8 << 20) {
        parts.splice(0, parts.length, new Blob(parts)); // the browser may keep a blob on disk
        loose = 0;
      }
      on(lines, bytes);
    }
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Problem(0, "cut", "The export was cut, and what is here is not all. Begin again.");
  }
  return { blob: new Blob(parts, { type: "application/x-ndjson" }), lines };
}

/** Saves a file. */
export function saveAs(blob: Blob, name: string) {
  const url = URL.createObjectURL(blob);
  const a = document.createElement("a");
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
