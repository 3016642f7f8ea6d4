import { lasting } from "../time";
import { Name } from "./basic";

/** The outcomes, each with its shape, so that no one needs the colour. */
export const shapes = {
  succeeded: "●",
  failed: "✕",
  skipped: "◌",
  missed: "⊘",
  cancelled: "■",
  running: "◐",
  waiting: "▹",
  late: "▲",
} as const;

export type OutcomeName = keyof typeof shapes;

/** The order of outcomes in stacks and legends. */
export const outcomes = Object.keys(shapes) as OutcomeName[];

const reasons: Record<string, string> = {
  overlap: "the one before was still running",
  paused: "paused",
  missed: "its time passed while nothing could fire",
  expired: "too late: max_lateness",
  excluded: "a calendar excludes it",
  requested: "somebody skipped it",
  quiet_hours: "quiet hours",
  no_workflow: "the workflow was deleted",
  superseded: "the schedule was changed",
};

/** A reason of the server in words. */
export const because = (reason?: string | null) => (reason ? (reasons[reason] ?? reason.replaceAll("_", " ")) : "");

/** The outcome that a tick's state is shown as. */
export function outcomeOf(state: string, reason?: string | null): OutcomeName {
  if (state === "skipped" && reason === "missed") return "missed";
  if (state === "scheduled") return "waiting";
  return state in shapes ? (state as OutcomeName) : "waiting";
}

interface Props {
  state: string;
  reason?: string | null;
  lateness?: number | null;
  /** Shows the reason behind the word. */
  why?: boolean;
}

/** A tick's state: a shape in its colour and a word. */
export function Outcome({ state, reason, lateness, why }: Props) {
  const name = outcomeOf(state, reason);
  const late = lateness !== undefined && lateness !== null && lateness >= 5000;
  return (
    <span class={`outcome ${name}`}>
      <span class="shape" aria-hidden="true">
        {shapes[name]}
      </span>
      <span>
        {name}
        {why && reason && reason !== "missed" && <span class="dim why">: {because(reason)}</span>}
        {late && <span class="dim"> {lasting(lateness)} late</span>}
      </span>
    </span>
  );
}

const states: Record<string, { shape: string; outcome: OutcomeName; word: string }> = {
  active: { shape: "●", outcome: "succeeded", word: "active" },
  paused: { shape: "❙❙", outcome: "waiting", word: "paused" },
  completed: { shape: "■", outcome: "waiting", word: "completed" },
  quarantined: { shape: "✕", outcome: "failed", word: "quarantined" },
  enabled: { shape: "●", outcome: "succeeded", word: "enabled" },
  held: { shape: "❙❙", outcome: "missed", word: "held" },
  disabled: { shape: "✕", outcome: "failed", word: "disabled" },
};

/** The status of a schedule, a workflow or an endpoint. */
export function Status({ of }: { of: string }) {
  const s = states[of] ?? { shape: "▹", outcome: "waiting", word: of };
  return (
    <span class={`outcome ${s.outcome}`}>
      <span class="shape" aria-hidden="true">
        {s.shape}
      </span>
      {s.word}
    </span>
  );
}

/** The last outcomes, oldest first, one mark each. */
export function Strip({ ticks }: { ticks: { state: string; reason?: string; timestamp: string }[] }) {
  const words = outcomes.map((o) => [o, ticks.filter((t) => outcomeOf(t.state, t.reason) === o).length] as const).filter(([, n]) => n > 0);
  return (
    <span class="strip" role="img" aria-label={`Last ${ticks.length}: ${words.map(([o, n]) => `${n} ${o}`).join(", ")}`}>
      {ticks.map((t) => {
        const o = outcomeOf(t.state, t.reason);
        return (
          <i key={t.timestamp} class={`shape ${o}`}>
            {shapes[o]}
          </i>
        );
      })}
    </span>
  );
}

/** Labels as chips. */
export function Labels({ of }: { of?: Record<string, string> | null }) {
  return (
    <>
      {Object.entries(of ?? {}).map(([name, value]) => (
        <span key={name} class="chip">
          <Name>
            {name}: {value}
          </Name>
        </span>
      ))}
    </>
  );
}
