import { useState } from "preact/hooks";
import { call } from "../../call";
import { Action, Await, Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Confirm } from "../../parts/dialog";
import { Diff } from "../../parts/json";
import { useQuery } from "../../query";
import { toast } from "../../toast";
import { useParams } from "../../url";
import { again, definition, type Revision, type Shown, useRevisions } from "./data";

const at = "/v1/workflows/{workflow}/schedules/{key}" as const;

/** Each change: what differs, and what it did to the coming ticks. */
export default function Revisions({ of }: { of: Shown }) {
  const { s, name } = of;
  const revisions = useRevisions(of);
  const [query, change] = useParams();
  const [restoring, restore] = useState<Revision | null>(null);
  return (
    <Await of={revisions}>
      {(all) => {
        const after = all.items.find((r) => String(r.version) === query.after) ?? all.items[0];
        const before = all.items.find((r) => String(r.version) === query.before) ?? all.items[all.items.indexOf(after) + 1] ?? after;
        return (
          <div class="stack">
            <Panel title="Changes" bare>
              <div class="scroll">
                <table>
                  <thead>
                    <tr>
                      <th>before</th>
                      <th>after</th>
                      <th>version</th>
                      <th>changed</th>
                      <th>by</th>
                      <th>next tick</th>
                      <th />
                    </tr>
                  </thead>
                  <tbody>
                    {all.items.map((r) => (
                      <tr key={r.version}>
                        <td>
                          <input type="radio" name="before" aria-label={`compare from version ${r.version}`} checked={r === before} onChange={() => change({ before: String(r.version) })} />
                        </td>
                        <td>
                          <input type="radio" name="after" aria-label={`compare to version ${r.version}`} checked={r === after} onChange={() => change({ after: String(r.version) })} />
                        </td>
                        <td class="num">{r.version}</td>
                        <td>
                          <Clock at={r.changed_at} />
                        </td>
                        <td>
                          <Name>{r.changed_by}</Name>
                        </td>
                        <td>
                          {r.next_before === r.next_after ? (
                            <span class="dim">as before</span>
                          ) : (
                            <>
                              <Clock at={r.next_before} zone={s.timezone_in_force} /> → <Clock at={r.next_after} zone={s.timezone_in_force} />
                            </>
                          )}
                        </td>
                        <td class="right">
                          {r.version !== s.version && (
                            <Action kind="quiet" scope="schedules:write" why={r.payload_kept === false ? "Its payload is no longer kept." : ""} onClick={() => restore(r)}>
                              Restore
                            </Action>
                          )}
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            </Panel>
            <Panel title={before === after ? `Version ${after.version}` : `Version ${before.version} → ${after.version}`}>
              <Diff before={definition(before)} after={definition(after)} same={before === after ? "There is no version before it." : "The definition is the same."} />
            </Panel>
            {before !== after && <Effect before={before} after={after} of={of} />}
            {restoring && (
              <Confirm
                title={`Restore version ${restoring.version}`}
                verb="Restore"
                danger={false}
                wide
                onClose={() => restore(null)}
                onSend={async () => {
                  const { status, ...rest } = definition(restoring);
                  await call("put", at, { path: name, ifMatch: of.etag, body: { ...rest, ...(status === "active" || status === "paused" ? { status } : {}) } as never });
                  toast(`The schedule is as in version ${restoring.version}.`);
                  await again(name);
                }}
              >
                <p>This becomes a new version. What changes:</p>
                <Diff before={definition(all.items[0])} after={definition(restoring)} />
              </Confirm>
            )}
          </div>
        );
      }}
    </Await>
  );
}

/** The next ticks by both specs, side by side. The server computes both. */
function Effect({ before, after, of: { s, name } }: { before: Revision; after: Revision; of: Shown }) {
  const ticks = useQuery({
    key: ["effect", before.spec, after.spec, name],
    fn: (signal) =>
      Promise.all(
        [before, after].map(async (r) => (await call("post", "/v1/schedules/preview", { body: { spec: r.spec, count: 7, workflow: name.workflow, key: name.key, subject: r.subject }, signal })).value),
      ),
  });
  return (
    <Panel title="The next seven ticks by each">
      <Await of={ticks}>
        {(both) => (
          <div class="two">
            {both.map((p, i) => (
              <div class="stack" key={i === 0 ? "before" : "after"}>
                <h3>
                  Version {(i === 0 ? before : after).version}: {p.reading}
                </h3>
                <ul>
                  {p.ticks.map((t) => (
                    <li key={t.timestamp}>
                      <Clock at={t.timestamp} zone={s.timezone_in_force} local={t.local_time} dst={t.dst} />
                    </li>
                  ))}
                </ul>
              </div>
            ))}
          </div>
        )}
      </Await>
    </Panel>
  );
}
