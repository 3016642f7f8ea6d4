import { useState } from "preact/hooks";
import { type Answer, call, read } from "../../call";
import { now } from "../../live";
import { Panel, Problem } from "../../parts/basic";
import { Clock, dstWords } from "../../parts/clock";
import { Month } from "../../parts/month";
import { useQuery, useResting } from "../../query";
import { refused } from "../../session";
import type { Draft } from "./draft";

type Preview = Answer<"/v1/schedules/preview", "post">;

/** Asks the server what a draft would do. */
export function usePreview(draft: Draft) {
  const body = useResting(
    { spec: draft.spec, ...(draft.workflow && draft.key ? { workflow: draft.workflow, key: draft.key } : {}), ...(draft.subject || draft.key ? { subject: draft.subject || draft.key } : {}) },
    250,
  );
  const ask = (more: object, signal: AbortSignal) => call("post", "/v1/schedules/preview", { body: { ...body, ...more } as never, signal }).then((g) => g.value);
  const year = new Date(now()).getUTCFullYear() + 1;
  const next = useQuery({ key: ["preview", body], fn: (signal) => ask({ count: 10 }, signal), keep: true });
  const span = { from: `${year - 1}-12-31T23:59:59Z`, until: `${year + 1}-01-01T00:00:00Z`, count: 1000 };
  const all = useQuery({ key: ["preview", body, year], fn: (signal) => ask(span, signal), keep: true, on: next.data !== undefined && !next.error });
  return { next, all, year };
}

/** The reading, the coming ticks, a month of them, and what they join. */
export function PreviewPanel({ draft, preview: { next, all, year } }: { draft: Draft; preview: ReturnType<typeof usePreview> }) {
  const p = next.error ? undefined : next.data;
  const zone = draft.spec.timezone?.startsWith("@") ? undefined : (draft.spec.timezone ?? "UTC");
  return (
    <div class="stack preview" aria-live="polite">
      <Panel title="What it does">
        <Problem error={next.error} />
        {p && (
          <>
            <p class="reading">{p.reading || "It never fires."}</p>
            {p.warnings.map((w) => (
              <p class="note amber" key={w.code + w.detail}>
                {w.detail}
              </p>
            ))}
            <InYear all={all.data} year={year} />
            <Herd at={p.ticks[0]?.timestamp} />
          </>
        )}
      </Panel>
      {p && p.ticks.length > 0 && (
        <Panel title="Coming" bare>
          <table>
            <tbody>
              {p.ticks.map((t) => (
                <tr key={t.timestamp}>
                  <td>
                    <Clock at={t.timestamp} zone={zone} local={t.local_time} dst={t.dst} relative />
                  </td>
                  <td class="dim">{dstWords[t.dst] ?? ""}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Panel>
      )}
      {p && <Small of={p} zone={zone ?? p.ticks[0]?.local_time.slice(19) ?? ""} />}
    </div>
  );
}

function InYear({ all, year }: { all?: Preview; year: number }) {
  if (!all) return null;
  const count = (dst: string) => all.ticks.filter((t) => t.dst === dst).length;
  const more = all.ticks.length === 1000 ? "1,000 ticks or more" : `${all.ticks.length.toLocaleString("en")} ticks`;
  const gap = count("gap");
  const twice = count("overlap_second");
  return (
    <p class="dim">
      In {year}: {more}
      {gap > 0 && `, ${gap} at a time that the clock skips`}
      {twice > 0 && `, ${twice} a second time when the clock goes back`}
    </p>
  );
}

/** How many others fire in the same minute. */
function Herd({ at }: { at?: string }) {
  const soon = at !== undefined && Date.parse(at) - now() < 86_400_000;
  const minute = soon ? new Date(Math.floor(Date.parse(at) / 60_000) * 60_000).toISOString() : "";
  const f = useQuery({
    key: ["herd", minute],
    fn: (signal) => read("/v1/admin/forecast", { query: { hours: 24, group: "timing", at: minute }, signal }),
    on: soon && !refused("tenant:read"),
    keep: true,
  });
  if (!soon || !f.data) return null;
  const others = (f.data.groups ?? []).reduce((sum, g) => sum + g.count, 0);
  const peak = f.data.peaks.find((p) => p.at.slice(0, 16) === minute.slice(0, 16));
  if (others === 0) return <p class="dim">No other tick is due in the minute of its first.</p>;
  return (
    <p class={peak ? "note amber" : "dim"}>
      {others.toLocaleString("en")} other ticks are due in the minute of its first.
      {peak?.jitter && ` They exceed ticks_per_second: with a jitter of ${peak.jitter} none would wait.`}
    </p>
  );
}

function Small({ of: p, zone }: { of: Preview; zone: string }) {
  const first = p.ticks[0]?.local_time.slice(0, 7) ?? new Date(now()).toISOString().slice(0, 7);
  const [month, set] = useState("");
  return (
    <Panel>
      <Month
        zone={zone}
        month={month || first}
        onMonth={set}
        marks={p.ticks.map((t) => ({ at: t.timestamp, local: t.local_time, dst: t.dst }))}
        until={p.exhausted ? undefined : p.ticks.at(-1)?.local_time}
      />
    </Panel>
  );
}
