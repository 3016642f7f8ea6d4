import { type Answer, read } from "../../call";
import { now } from "../../live";
import { Action, Await, Copy, Name, Panel } from "../../parts/basic";
import { type OutcomeName, shapes } from "../../parts/outcome";
import { useQuery } from "../../query";
import { addDays, wall } from "../../time";
import { link, useParams } from "../../url";

type Day = Answer<"/v1/subjects/{subject}/explain">;
type Verdict = Day["workflows"][number];

const looks: Record<string, OutcomeName> = {
  sent: "succeeded",
  fired: "succeeded",
  late: "late",
  failed: "failed",
  skipped: "skipped",
  missed: "missed",
  cancelled: "cancelled",
  running: "running",
};
const look = (outcome: string): OutcomeName => looks[outcome] ?? "waiting";

/** What a subject got on a day, with one verdict a workflow: the answer to "why did it get nothing?" */
export function Why({ subject, zone }: { subject: string; zone: string | null }) {
  const [query, change] = useParams();
  const yesterday = wall(now() - 86_400_000, zone ?? "UTC").slice(0, 10);
  const on = query.on ?? yesterday;
  const day = useQuery({
    key: ["subject-day", subject, on],
    fn: (signal) => read("/v1/subjects/{subject}/explain", { path: { subject }, query: { on }, signal }),
    keep: true,
  });
  return (
    <Panel title="What did it get, and why?" tools={day.data && <Copy text={told(day.data)} label="Copy as text" />}>
      <div class="buttons">
        <label class="filter set">
          <span>day</span>
          <input type="date" value={on} onChange={(e) => change({ on: e.currentTarget.value })} />
        </label>
        <Action kind="quiet" onClick={() => change({ on: addDays(on, -1) })}>
          Day before
        </Action>
        <Action kind="quiet" onClick={() => change({ on: addDays(on, 1) })}>
          Day after
        </Action>
        {day.data && <span class="dim">by the clock of {day.data.timezone}</span>}
      </div>
      <Await of={day}>
        {(d) => (
          <>
            {d.workflows.length === 0 && <p class="dim">No workflow had a schedule for this subject on that day.</p>}
            {d.workflows.map((w) => (
              <Lane key={w.workflow} of={w} />
            ))}
            {d.more && <p class="dim">The subject has more schedules or ticks than these lanes show.</p>}
          </>
        )}
      </Await>
    </Panel>
  );
}

/** The minute of the day that a local time of the server shows. */
const minute = (local: string) => Number(local.slice(11, 13)) * 60 + Number(local.slice(14, 16));

function Lane({ of: w }: { of: Verdict }) {
  const kind = look(w.verdict);
  return (
    <div class="lane">
      <div class="lane-head">
        <span class={`outcome ${kind}`}>
          <span class="shape" aria-hidden="true">
            {shapes[kind]}
          </span>
          <strong>{w.verdict.replaceAll("_", " ")}</strong>
        </span>
        <a href={link("workflows", w.workflow)}>{w.workflow}</a>
      </div>
      <p>
        <Name>{w.detail}</Name>
      </p>
      {w.planned.length > 0 && (
        <ol class="hours" aria-label={`Ticks of ${w.workflow} on that day`}>
          {w.planned.slice(0, 200).map((t) => {
            const o = look(t.outcome);
            const words = `${t.local_time.slice(11, 16)}: ${t.outcome.replaceAll("_", " ")}`;
            return (
              <li key={t.timestamp + (t.tick_id ?? "")} style={{ left: `${(minute(t.local_time) / 1440) * 100}%` }}>
                {t.tick_id ? (
                  <a class={`shape ${o}`} href={link("ticks", t.tick_id)} title={words} aria-label={words}>
                    {shapes[o]}
                  </a>
                ) : (
                  <span class={`shape ${o}`} title={words} role="img" aria-label={words}>
                    {shapes[o]}
                  </span>
                )}
              </li>
            );
          })}
        </ol>
      )}
    </div>
  );
}

/** The verdicts as a text for a ticket. */
function told(day: Day): string {
  const lines = day.workflows.map((w) => {
    const times = w.planned.map((t) => `    ${t.local_time}  ${t.outcome}${t.tick_id ? `  ${t.tick_id}` : ""}`);
    return [`${w.workflow}: ${w.verdict.replaceAll("_", " ")}. ${w.detail}`, ...times].join("\n");
  });
  return [`${day.subject} on ${day.on} (${day.timezone})`, ...lines].join("\n");
}
