import { lazy, useRoute } from "preact-iso";
import { now } from "../../live";
import { Await, Copy, Head, Name } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Labels, Status } from "../../parts/outcome";
import { needZones, offsetAt, offsetText, zones } from "../../time";
import { link, scheduleLink, useParams } from "../../url";
import { Actions } from "./actions";
import { type Shown, useSchedule } from "./data";
import { Now } from "./now";
import "./style.css";

const tabs = {
  now: { text: "Now", page: Now },
  month: { text: "Month", page: lazy(() => import("./month")) },
  history: { text: "History", page: lazy(() => import("./history")) },
  revisions: { text: "Revisions", page: lazy(() => import("./revisions")) },
  explain: { text: "Explain", page: lazy(() => import("./explain")) },
  payload: { text: "Payload", page: lazy(() => import("./payload")) },
};

/** One schedule: what it is, what it did, what it will do, and why. */
export default function SchedulePage() {
  const { params } = useRoute();
  const { workflow, key } = params as { workflow: string; key: string };
  const [query] = useParams();
  const got = useSchedule(workflow, key);
  const tab = query.tab in tabs ? (query.tab as keyof typeof tabs) : "now";
  const Tab = tabs[tab].page;
  const at = scheduleLink(workflow, key);
  return (
    <Await of={got}>
      {({ value: s, etag }) => {
        const shown: Shown = { s, etag, name: { workflow, key } };
        return (
          <>
            <Head
              title={key}
              sub={
                <>
                  <a href={link("workflows", workflow)}>{workflow}</a> · <Status of={s.status} />
                  {s.status_note && (
                    <>
                      : <Name>{s.status_note}</Name>
                    </>
                  )}
                  {s.paused_until && (
                    <>
                      {" until "}
                      <Clock at={s.paused_until} zone={s.timezone_in_force} />
                    </>
                  )}
                </>
              }
            >
              <Actions of={shown} />
            </Head>
            <Facts of={shown} />
            <nav class="tabs" aria-label="Parts of the schedule">
              {Object.entries(tabs).map(([name, t]) => (
                <a key={name} href={name === "now" ? at : `${at}?tab=${name}`} aria-current={name === tab ? "page" : undefined}>
                  {t.text}
                </a>
              ))}
            </nav>
            <Tab of={shown} />
          </>
        );
      }}
    </Await>
  );
}

function Facts({ of: { s } }: { of: Shown }) {
  needZones();
  const zone = s.timezone_in_force;
  const offset = offsetAt(zone, now());
  const change = zones.value?.items.find((z) => z.timezone === zone)?.next_change;
  return (
    <section class="panel">
      <div class="body">
        <dl class="facts">
          <dt>fires</dt>
          <dd>
            {s.reading || "its times cannot be computed"}
            {s.warnings.length > 0 && (
              <details>
                <summary class="dim">{s.warnings.length === 1 ? "1 warning" : `${s.warnings.length} warnings`}</summary>
                <ul>
                  {s.warnings.map((w) => (
                    <li key={w.code + w.detail}>{w.detail}</li>
                  ))}
                </ul>
              </details>
            )}
          </dd>
          <dt>next</dt>
          <dd>{s.status === "active" ? <Clock at={s.next_at} zone={zone} local={s.next_local} next focus /> : <span class="dim">none, while it is {s.status}</span>}</dd>
          <dt>zone</dt>
          <dd>
            {zone}
            {s.spec.timezone === "@subject" ? " of the subject" : ""}
            {offset && (
              <span class="dim">
                {" "}
                {offsetText(offset.minutes)}
                {change && (
                  <>
                    , changes <Clock at={change.at} zone={zone} />
                  </>
                )}
              </span>
            )}
          </dd>
          <dt>for</dt>
          <dd>
            <a href={link("subjects", s.subject)}>
              <Name>{s.subject}</Name>
            </a>
          </dd>
          {Object.keys(s.labels ?? {}).length > 0 && (
            <>
              <dt>labels</dt>
              <dd class="buttons">
                <Labels of={s.labels} />
              </dd>
            </>
          )}
          {s.note && (
            <>
              <dt>note</dt>
              <dd>
                <Name>{s.note}</Name>
              </dd>
            </>
          )}
          <dt>changed</dt>
          <dd>
            <Clock at={s.updated_at} relative focus /> by <Name>{s.updated_by}</Name>, version {s.version}{" "}
            <span class="dim">
              <code>{s.id}</code> <Copy text={s.id} label="Copy the id" />
            </span>
          </dd>
        </dl>
      </div>
    </section>
  );
}
