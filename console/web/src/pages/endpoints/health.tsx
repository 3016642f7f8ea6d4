import { type Answer, read } from "../../call";
import { Chart } from "../../charts/chart";
import { Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { type OutcomeName, shapes } from "../../parts/outcome";
import { useQuery } from "../../query";
import { lasting } from "../../time";
import { link } from "../../url";

type Read = Answer<"/v1/endpoints/{name}/health">;

const breakers: Record<Read["breaker"], { outcome: OutcomeName; words: string }> = {
  closed: { outcome: "succeeded", words: "closed: requests go out" },
  half_open: { outcome: "running", words: "half open: the next request decides" },
  open: { outcome: "failed", words: "open: ticks wait, since the last requests failed" },
};

const one = (h: Read) => {
  const ok = h.minutes.reduce((n, m) => n + Number(m.succeeded), 0);
  const bad = h.minutes.reduce((n, m) => n + Number(m.failed), 0);
  return { ok, all: ok + bad };
};

/** How an endpoint has answered lately: breaker, queue, the last quarter of an hour, the last answers. */
export function Health({ of: h }: { of: Read }) {
  const quotas = useQuery({ key: ["quotas"], fn: (signal) => read("/v1/quotas", { signal }) });
  const most = quotas.data?.quotas.running_per_endpoint?.limit;
  const breaker = breakers[h.breaker];
  const { ok, all } = one(h);
  return (
    <>
      <Panel title="Health">
        <dl class="facts">
          <dt>circuit breaker</dt>
          <dd>
            <span class={`outcome ${breaker.outcome}`}>
              <span class="shape" aria-hidden="true">
                {shapes[breaker.outcome]}
              </span>
              <span class="endpoint-words">{breaker.words}</span>
            </span>
            {h.open_until && (
              <span>
                {" until "}
                <Clock at={h.open_until} seconds relative />
              </span>
            )}
          </dd>
          <dt>ticks that wait</dt>
          <dd class="num">{Number(h.queued).toLocaleString("en")}</dd>
          <dt>under way</dt>
          <dd class="num">
            {Number(h.in_flight).toLocaleString("en")}
            {most !== undefined && <span class="dim"> of {Number(most).toLocaleString("en")} (running_per_endpoint) </span>}
            {most !== undefined && <meter min={0} max={Number(most)} value={Number(h.in_flight)} aria-label={`${h.in_flight} of ${most} requests under way`} />}
          </dd>
          <dt>last 15 minutes</dt>
          <dd>{all === 0 ? <span class="dim">no request</span> : `${((100 * ok) / all).toFixed(ok === all ? 0 : 1)} % of ${all.toLocaleString("en")} requests succeeded`}</dd>
        </dl>
        {h.minutes.length > 0 && (
          <Chart
            label="Requests by minute and how long they took"
            at={h.minutes.map((m) => m.at)}
            lines={[
              { label: "succeeded", color: "--succeeded", kind: "bars", values: h.minutes.map((m) => Number(m.succeeded)) },
              { label: "failed", color: "--failed", kind: "bars", values: h.minutes.map((m) => Number(m.failed)) },
              { label: "half took at most", color: "--running", kind: "line", right: true, dash: true, values: h.minutes.map((m) => Number(m.p50_ms)), format: lasting },
              { label: "99 % took at most", color: "--late", kind: "line", right: true, values: h.minutes.map((m) => Number(m.p99_ms)), format: lasting },
            ]}
          />
        )}
      </Panel>
      <Panel bare title="Last answers">
        {h.last.length === 0 ? (
          <p class="skeleton">Nothing was sent to it lately. Send a test to see how it answers.</p>
        ) : (
          <div class="scroll" tabIndex={0} role="region" aria-label="Last answers">
            <table>
              <thead>
                <tr>
                  <th>time</th>
                  <th>status</th>
                  <th>took</th>
                  <th>answer</th>
                  <th>tick</th>
                </tr>
              </thead>
              <tbody>
                {h.last.map((a) => (
                  <tr key={a.at + a.tick_id}>
                    <td>
                      <Clock at={a.at} seconds />
                    </td>
                    <td class="num">
                      <span class={`outcome ${a.error ? "failed" : "succeeded"}`}>
                        <span class="shape" aria-hidden="true">
                          {a.error ? shapes.failed : shapes.succeeded}
                        </span>
                        {a.status ?? "no answer"}
                      </span>
                    </td>
                    <td class="num nowrap">{lasting(Number(a.took_ms))}</td>
                    <td>{a.error ? <Name mono>{a.error}</Name> : <span class="dim">took it</span>}</td>
                    <td>
                      <a href={link("ticks", a.tick_id)} aria-label={`Open ${a.tick_id}`}>
                        Open
                      </a>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Panel>
    </>
  );
}
