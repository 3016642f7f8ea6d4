import { call, read } from "../../call";
import { Action, Await, Panel } from "../../parts/basic";
import { Clock, dstWords } from "../../parts/clock";
import { Outcome } from "../../parts/outcome";
import { POLL, useQuery } from "../../query";
import { toast } from "../../toast";
import { link, scheduleLink } from "../../url";
import { again, type Shown } from "./data";

const at = "/v1/workflows/{workflow}/schedules/{key}" as const;

/** The coming ten ticks and the last ten. */
export function Now({ of }: { of: Shown }) {
  const { s, name } = of;
  const zone = s.timezone_in_force;
  const coming = useQuery({
    key: ["schedule", name.workflow, name.key, "upcoming", s.version, s.next_at],
    fn: (signal) => read(`${at}/upcoming`, { path: name, query: { count: 10 }, signal }),
    keep: true,
  });
  const last = useQuery({ key: ["schedule", name.workflow, name.key, "last"], fn: (signal) => read(`${at}/ticks`, { path: name, query: { limit: 10 }, signal }), every: POLL });
  const undo = () =>
    call("delete", `${at}/skip`, { path: name })
      .then(() => {
        toast("Skipped ticks fire again.");
        return again(name);
      })
      .catch((e) => toast(e.message));
  return (
    <div class="grid">
      <Panel
        title="Coming"
        bare
        tools={
          <Action kind="quiet" scope="schedules:write" onClick={undo}>
            Take back skips
          </Action>
        }
      >
        {s.status !== "active" ? (
          <p class="skeleton">It is {s.status}: nothing is to come.</p>
        ) : (
          <Await of={coming}>
            {(c) =>
              c.ticks.length === 0 ? (
                <p class="skeleton">{c.exhausted ? "No time is left." : "The next is known when the tick before has ended."}</p>
              ) : (
                <table>
                  <tbody>
                    {c.ticks.map((t) => (
                      <tr key={t.timestamp}>
                        <td>
                          <Clock at={t.timestamp} zone={zone} local={t.local_time} dst={t.dst} next={t === c.ticks[0]} relative />
                          {t.dst !== "none" && <div class="dim">{dstWords[t.dst]}</div>}
                        </td>
                        <td class="right">
                          <a href={`${scheduleLink(name.workflow, name.key)}?tab=explain&at=${encodeURIComponent(t.timestamp)}`}>explain</a>
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              )
            }
          </Await>
        )}
      </Panel>
      <Panel title="Last" bare tools={<a href={`${scheduleLink(name.workflow, name.key)}?tab=history`}>All</a>}>
        <Await of={last}>
          {(l) =>
            l.items.length === 0 ? (
              <p class="skeleton">It has not fired yet.</p>
            ) : (
              <table>
                <tbody>
                  {l.items.map((t) => (
                    <tr key={t.tick_id}>
                      <td>
                        <a href={link("ticks", t.tick_id)}>
                          <Clock at={t.timestamp} zone={t.timezone} local={t.local_time} dst={t.dst} />
                        </a>
                      </td>
                      <td>
                        <Outcome state={t.state} reason={t.reason} lateness={t.lateness_ms} why />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            )
          }
        </Await>
      </Panel>
      <Panel title="Counts">
        <dl class="facts">
          {Object.entries(s.stats).map(([name, n]) => (
            <>
              <dt key={name}>{name}</dt>
              <dd class="num">{n.toLocaleString("en")}</dd>
            </>
          ))}
        </dl>
      </Panel>
    </div>
  );
}
