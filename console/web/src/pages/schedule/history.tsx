import { read } from "../../call";
import { Empty, Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Filters } from "../../parts/filters";
import { differences } from "../../parts/json";
import { Outcome, outcomeOf, Strip } from "../../parts/outcome";
import { type Column, Table } from "../../parts/table";
import { useList } from "../../query";
import { instantOf, lasting } from "../../time";
import { link, scheduleLink, useParams } from "../../url";
import { definition, type Revision, type Shown, type TickRecord, useRevisions } from "./data";

/** A row of the history: a tick, or the change from one version to the next. */
type Row = { tick: TickRecord } | { before: Revision; after: Revision };

const tickColumns: Column<TickRecord>[] = [
  { head: "time", width: "minmax(170px, 1.2fr)", cell: (t) => <Clock at={t.timestamp} zone={t.timezone} local={t.local_time} dst={t.dst} /> },
  { head: "outcome", width: "minmax(170px, 2fr)", cell: (t) => <Outcome state={t.state} reason={t.reason} why /> },
  { head: "late", width: "80px", cell: (t) => <span class="num">{t.state === "skipped" || t.lateness_ms === null ? "–" : lasting(t.lateness_ms)}</span> },
  { head: "fired", width: "minmax(150px, 1fr)", cell: (t) => <Clock at={t.fired_at} zone={t.timezone} seconds /> },
  { head: "attempts", width: "70px", cell: (t) => <span class="num">{t.attempt}</span> },
  { head: "version", width: "64px", cell: (t) => <span class="num">{t.schedule_version}</span> },
  { head: "cause", width: "90px", cell: (t) => t.cause.replaceAll("_", " ") },
  { head: "tick", width: "56px", cell: (t) => <a href={link("ticks", t.tick_id)}>open</a> },
];

const columns: Column<Row>[] = tickColumns.map((c) => ({ ...c, cell: (r) => "tick" in r && c.cell(r.tick) }));

/** The ticks, newest first, with each change of the version between the last tick before it and the first one after it. The newest revision is first. */
export function rowsOf(ticks: TickRecord[], revisions: Revision[]): Row[] {
  const byVersion = new Map(revisions.map((r) => [Number(r.version), r]));
  const rows: Row[] = [];
  let version = Number(revisions[0]?.version ?? 0);
  for (const tick of ticks) {
    for (; version > Number(tick.schedule_version); version--) {
      const [after, before] = [byVersion.get(version), byVersion.get(version - 1)];
      if (after && before) rows.push({ before, after });
    }
    rows.push({ tick });
  }
  return rows;
}

const short = (v: unknown) => {
  const text = v === undefined || v === null ? "–" : typeof v === "string" ? v : JSON.stringify(v);
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
};

/** The line of a change: its first differences, and who made it. */
function Version({ before, after, at }: { before: Revision; after: Revision; at: string }) {
  const changes = differences(definition(before), definition(after));
  return (
    <>
      <a href={`${at}?tab=revisions&before=${before.version}&after=${after.version}`}>version {after.version}</a>{" "}
      {changes.slice(0, 2).map((c) => (
        <span key={c.pointer}>
          <code>{c.pointer}</code>: <Name>{short(c.before)}</Name> → <Name>{short(c.after)}</Name>;{" "}
        </span>
      ))}
      {changes.length > 2 && `${changes.length - 2} more; `}
      <Name>{after.changed_by}</Name>, <Clock at={after.changed_at} />
    </>
  );
}

const late = (t: TickRecord) => t.lateness_ms ?? 0;

/** All that the schedule did, newest first. */
export default function History({ of }: { of: Shown }) {
  const { s, name } = of;
  const revisions = useRevisions(of);
  const [query] = useParams();
  const zone = s.timezone_in_force;
  const chosen = { state: query.state || undefined, from: query.from ? instantOf(query.from, zone) : undefined, to: query.to ? instantOf(query.to, zone) : undefined };
  const list = useList<TickRecord>({
    key: ["schedule", name.workflow, name.key, "ticks", chosen],
    fn: (cursor, signal) => read("/v1/workflows/{workflow}/schedules/{key}/ticks", { path: name, query: { ...chosen, cursor, limit: 100 } as never, signal }),
  });
  const page = scheduleLink(name.workflow, name.key);
  const recent = list.rows.slice(0, 120).reverse();
  const top = Math.max(100, ...recent.map(late));
  return (
    <>
      <Filters
        of={[
          { name: "state", label: "state", always: true, values: ["scheduled", "running", "succeeded", "failed", "cancelled", "skipped"] },
          { name: "from", label: "from", type: "datetime-local" },
          { name: "to", label: "before", type: "datetime-local" },
        ]}
      />
      {recent.length > 1 && (
        <Panel title={`Lateness of the last ${recent.length}`} tools={<span class="dim">highest {lasting(Math.max(...recent.map(late)))}</span>}>
          <p>
            <span class="dim">outcomes of the last {Math.min(20, recent.length)}, oldest first:</span> <Strip ticks={recent.slice(-20)} />
          </p>
          <div class="lateness" role="img" aria-label={`Lateness of the last ${recent.length} ticks. The table has the figures.`}>
            {recent.map((t) => (
              <i key={t.tick_id} style={{ height: `${Math.max(3, (late(t) / top) * 44)}px`, color: `var(--${outcomeOf(t.state, t.reason)})` }} />
            ))}
          </div>
        </Panel>
      )}
      <Panel bare>
        <Table
          label="Ticks of the schedule"
          columns={columns}
          rows={rowsOf(list.rows, Object.values(chosen).some(Boolean) ? [] : (revisions.data?.items ?? []))}
          id={(r) => ("tick" in r ? r.tick.tick_id : `v${r.after.version}`)}
          href={(r) => ("tick" in r ? link("ticks", r.tick.tick_id) : `${page}?tab=revisions`)}
          whole={(r) => ("tick" in r ? undefined : <Version before={r.before} after={r.after} at={page} />)}
          list={list as never}
          empty={
            <Empty title={chosen.state || chosen.from || chosen.to ? "No tick matches" : "It has not fired yet"}>
              Each tick that fires, is skipped or is missed appears here, with the reason in words.
            </Empty>
          }
        />
      </Panel>
    </>
  );
}
