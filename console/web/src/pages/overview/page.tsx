import type { ComponentChildren } from "preact";
import { lazy } from "preact-iso";
import { read } from "../../call";
import { Spark } from "../../charts/spark";
import { now } from "../../live";
import { Action, Await, Empty, Head, Name, Panel, Problem } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Status } from "../../parts/outcome";
import { POLL, useQuery } from "../../query";
import { refused, self } from "../../session";
import { lasting } from "../../time";
import { link } from "../../url";
import { HaltAction } from "./halt";
import { Tail } from "./tail";
import { type Bucket, eventWords, minute, type OverviewAnswer } from "./words";
import "./style.css";

const Load = lazy(() => import("./load"));

/** What happens now in the tenant: what is due, what is late, what failed, what waits. */
export default function Overview() {
  const may = !refused("tenant:read");
  const overview = useQuery({ key: ["overview"], fn: (signal) => read("/v1/admin/overview", { signal }), every: POLL, on: may });
  const series = useQuery({
    key: ["series", "3h"],
    fn: (signal) => read("/v1/admin/series", { query: { from: minute(now() - 3 * 3_600_000), step: "1m" } as never, signal }),
    every: 4 * POLL,
    on: may,
  });
  if (!may) {
    return (
      <>
        <Head title="Overview" />
        <Empty title="Your key shows no overview" action={<Action href={link("schedules")}>Schedules</Action>}>
          {refused("tenant:read")} You can still look at what it allows, such as the schedules.
        </Empty>
      </>
    );
  }
  return (
    <>
      <Head title="Overview">{overview.data && <HaltAction halted={overview.data.firing.halted_at !== null} />}</Head>
      <Await of={overview}>
        {(o) =>
          o.schedules.total === 0 ? (
            <First />
          ) : (
            <>
              <Figures of={o} buckets={series.data?.buckets ?? []} />
              <Panel title="Ticks a minute">
                <Problem error={series.error} retry={() => series.refetch()} />
                <Load series={series.data} quota={o.quotas.ticks_per_second?.limit ?? null} />
              </Panel>
              <div class="grid">
                <Attention of={o} />
                <Workflows of={o} />
                <Running />
              </div>
            </>
          )
        }
      </Await>
      <Tail />
    </>
  );
}

function Figures({ of: o, buckets }: { of: OverviewAnswer; buckets: Bucket[] }) {
  const hour = buckets.slice(-60);
  const waiting = o.backlog.unswept + o.backlog.unopened + o.backlog.ready + o.backlog.held + o.backlog.buffered;
  const n = (value: number) => value.toLocaleString("en");
  return (
    <div class="figures">
      <Figure title="Due in the next hour" href={link("forecast")} value={o.due ? n(o.due.hour) : "…"} spark={hour.map((b) => b.due)}>
        {o.due ? `${n(o.due.minute)} in the next minute` : "being counted"}
      </Figure>
      <Figure title="Lateness, half of the ticks" href={link("ticks")} value={o.lateness.p50_ms === null ? "–" : lasting(o.lateness.p50_ms)} spark={hour.map((b) => b.lateness_ms.p99)}>
        {o.lateness.p99_ms === null ? "no tick in the last minutes" : `99 %: ${lasting(o.lateness.p99_ms)}`}
      </Figure>
      <Figure title="Failed in the last hour" href={link("dead-letters")} value={n(o.failures.last_hour)} spark={hour.map((b) => b.failed)} bad={o.failures.last_hour > 0}>
        {n(o.failures.dead_letters)} dead letters, {n(o.failures.retrying)} wait for another attempt
      </Figure>
      <Figure title="Waiting now" href={`${link("ticks")}?state=scheduled`} value={`${n(waiting)}${o.backlog.truncated ? "+" : ""}`} bad={o.throttling.length > 0}>
        {o.backlog.oldest_at ? (
          <>
            oldest of <Clock at={o.backlog.oldest_at} relative />
          </>
        ) : (
          `${n(o.running.pushed + o.running.awaited + o.running.leased)} are running`
        )}
      </Figure>
    </div>
  );
}

interface FigureProps {
  title: string;
  value: string;
  href: string;
  spark?: (number | null)[];
  bad?: boolean;
  children: ComponentChildren;
}

function Figure({ title, value, href, spark, bad, children }: FigureProps) {
  return (
    <section class="panel figure">
      <h2>
        <a href={href}>{title}</a>
      </h2>
      <div class={bad ? "value num bad" : "value num"}>{value}</div>
      <div class="dim sub">{children}</div>
      {spark && spark.length > 1 && <Spark values={spark} />}
    </section>
  );
}

/** What somebody should look at. */
function Attention({ of: o }: { of: OverviewAnswer }) {
  const quotas = Object.entries(o.quotas).filter(([, q]) => q.soft);
  const nothing = !o.throttling.length && !o.unmet.length && !o.held.length && !o.failures.endpoints.length && !o.schedules.quarantined && !quotas.length;
  return (
    <Panel title="Needs attention">
      {nothing && <p class="dim">Nothing: no limit holds ticks back, no endpoint is off, no workflow is late.</p>}
      <ul class="lines">
        {o.throttling.map((t) => (
          <li key={t.by + t.workflow}>
            <span class="overdue">{t.waiting ? `${t.waiting.toLocaleString("en")} wait` : "Requests are refused"}</span> for {t.workflow ? `${t.by} of ${t.workflow}` : t.by}
            {t.since && (
              <>
                {" since "}
                <Clock at={t.since} />
              </>
            )}
          </li>
        ))}
        {o.unmet.map((u) => (
          <li key={u.event + u.workflow}>
            <a href={link("workflows", u.workflow)}>{u.workflow}</a> {eventWords[u.event] ?? u.event} since <Clock at={u.since} />
          </li>
        ))}
        {o.held.map((h) => (
          <li key={h.workflow}>
            <a href={link("workflows", h.workflow)}>{h.workflow}</a> is held since <Clock at={h.since} />
          </li>
        ))}
        {o.failures.endpoints.map((e) => (
          <li key={e.name}>
            Endpoint <a href={link("endpoints", e.name)}>{e.name}</a>: <Status of={e.state} />
          </li>
        ))}
        {o.schedules.quarantined > 0 && (
          <li>
            <a href={`${link("schedules")}?status=quarantined`}>{o.schedules.quarantined.toLocaleString("en")} schedules</a> are quarantined: their next time cannot be computed
          </li>
        )}
        {quotas.map(([name, q]) => (
          <li key={name}>
            Quota <a href={link("usage")}>{name}</a>: {q.used?.toLocaleString("en")} of {q.limit.toLocaleString("en")}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Workflows({ of: o }: { of: OverviewAnswer }) {
  const s = o.schedules;
  return (
    <Panel title="Workflows" bare tools={<a href={link("workflows")}>All</a>}>
      <table>
        <thead>
          <tr>
            <th>workflow</th>
            <th class="right">active</th>
            <th class="right">paused</th>
          </tr>
        </thead>
        <tbody>
          {s.workflows.slice(0, 8).map((w) => (
            <tr key={w.workflow}>
              <td class="break">
                <a href={link("workflows", w.workflow)}>{w.workflow}</a>
              </td>
              <td class="right num">
                <a href={`${link("schedules")}?workflow=${w.workflow}&status=active`}>{w.active.toLocaleString("en")}</a>
              </td>
              <td class="right num">{w.paused.toLocaleString("en")}</td>
            </tr>
          ))}
          <tr>
            <td class="dim">all</td>
            <td class="right num">{s.active.toLocaleString("en")}</td>
            <td class="right num">{s.paused.toLocaleString("en")}</td>
          </tr>
        </tbody>
      </table>
    </Panel>
  );
}

function Running() {
  const operations = useQuery({ key: ["operations", "running"], fn: (signal) => read("/v1/operations", { query: { limit: 5 }, signal }), every: 2 * POLL });
  return (
    <Panel title="Operations" tools={<a href={link("operations")}>All</a>}>
      <Problem error={operations.error} retry={() => operations.refetch()} />
      {operations.data?.items.length === 0 && <p class="dim">None yet. Changes of many schedules appear here, with their progress.</p>}
      <ul class="lines">
        {(operations.data?.items ?? []).map((op) => (
          <li key={op.id}>
            <a href={link("operations", op.id)}>{op.kind}</a> {op.state}
            {op.total ? `, ${op.done.toLocaleString("en")} of ${op.total.toLocaleString("en")}` : ""}
            <span class="dim">
              {" by "}
              <Name>{op.created_by}</Name>
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function First() {
  return (
    <Panel bare>
      <Empty
        title={`Nothing is scheduled in ${self.value?.tenant} yet`}
        action={
          <Action kind="main" href={link("schedules", "new")} scope="schedules:write">
            Make a schedule
          </Action>
        }
        curl={`curl -X PUT ${location.origin}/v1/workflows/hello/schedules/me \\
  -H "Authorization: Bearer $CARILLON_TOKEN" -H "Content-Type: application/json" \\
  -d '{"spec": {"timezone": "America/New_York", "cron": "0 8 * * 1-5"}}'`}
        cli={`carillon schedule put hello/me --cron "0 8 * * 1-5" --timezone America/New_York`}
      >
        A schedule says when a workflow fires for one key, such as a user. This page then shows what is due, what is late and what failed.
      </Empty>
    </Panel>
  );
}
