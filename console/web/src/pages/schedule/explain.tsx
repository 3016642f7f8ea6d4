import { type Answer, read } from "../../call";
import { now } from "../../live";
import { Action, Await, Field, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { useQuery } from "../../query";
import { instantOf, wall } from "../../time";
import { link, useParams } from "../../url";
import type { Shown } from "./data";

type Explanation = Answer<"/v1/workflows/{workflow}/schedules/{key}/explain">;

const good = ["in_force", "due", "on_time", "succeeded", "fired", "will_fire"];
const bad = ["failed", "missed", "timed_out", "lost", "unknown"];

const shapeOf = (outcome: string) => (good.includes(outcome) ? ["succeeded", "●"] : bad.includes(outcome) ? ["failed", "✕"] : ["missed", "◌"]);

/** Why a tick came at a time, or did not. */
export default function Explain({ of: { s, name } }: { of: Shown }) {
  const zone = s.timezone_in_force;
  const [query, change] = useParams();
  const at = query.at || s.last_at || s.next_at || new Date(Math.floor(now() / 60_000) * 60_000).toISOString();
  const answer = useQuery({
    key: ["schedule", name.workflow, name.key, "explain", at],
    fn: (signal) => read("/v1/workflows/{workflow}/schedules/{key}/explain", { path: name, query: { at }, signal }),
    keep: true,
  });
  return (
    <Panel title="Why did it fire, or not?">
      <Field label="Time" hint={`By the clock of ${zone}.`}>
        {(p) => (
          <input
            {...p}
            class="input"
            type="datetime-local"
            step="1"
            value={wall(Date.parse(at), zone)}
            onChange={(e) => {
              const instant = instantOf(e.currentTarget.value, zone);
              if (instant) change({ at: instant });
            }}
          />
        )}
      </Field>
      <Await of={answer}>
        {(x: Explanation) => (
          <div class="stack">
            <p class="note">
              <strong>{x.outcome.replaceAll("_", " ")}</strong>: {x.detail}
            </p>
            <ol class="path">
              {x.steps.map((step, i) => {
                const [css, shape] = shapeOf(step.outcome);
                return (
                  <li key={i}>
                    <span class={`shape ${css}`} aria-hidden="true">
                      {shape}
                    </span>
                    <div>
                      <strong>{step.what.replaceAll("_", " ")}</strong> <span class="dim">{step.outcome.replaceAll("_", " ")}</span> · <Clock at={step.at} zone={zone} seconds />
                      <div class="break">{step.detail}</div>
                      {step.link?.startsWith("/v1/ticks/") && <a href={link("ticks", step.link.slice("/v1/ticks/".length))}>Open the tick</a>}
                    </div>
                  </li>
                );
              })}
            </ol>
            <div class="buttons">
              <Action why={x.previous ? "" : "There is none before."} onClick={() => change({ at: x.previous ?? "" })}>
                ‹ Tick before
              </Action>
              <Action why={x.next ? "" : "There is none after."} onClick={() => change({ at: x.next ?? "" })}>
                Tick after ›
              </Action>
              {x.tick && <Action href={link("ticks", x.tick.tick_id)}>Open the tick</Action>}
            </div>
          </div>
        )}
      </Await>
    </Panel>
  );
}
