import { useState } from "preact/hooks";
import { type Answer, call, read } from "../../call";
import { Action, Await, Empty, Head, Name, Panel, Problem } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Dialog } from "../../parts/dialog";
import { type Filter, Filters } from "../../parts/filters";
import { type Column, Table } from "../../parts/table";
import { type Page, POLL, refresh, useList, useQuery } from "../../query";
import { lasting } from "../../time";
import { toast } from "../../toast";
import { link, useParams } from "../../url";
import { columns, type Tick } from "../ticks/page";

type Group = Answer<"/v1/admin/dead-letters/groups">["items"][number];
type Filtered = Record<string, string>;

const names = ["workflow", "endpoint", "key", "from", "to"];
const filters: Filter[] = [
  { name: "workflow", label: "workflow", always: true },
  { name: "endpoint", label: "endpoint", always: true },
  { name: "key", label: "key is" },
  { name: "from", label: "from", hint: "2026-11-23T08:00:00Z" },
  { name: "to", label: "before", hint: "2026-11-24T08:00:00Z" },
];

/** How many dead letters an operation delivers in a second. */
const pace = 100;

const groupColumns = (ask: (f: Filtered) => void): Column<Group>[] => [
  { head: "ticks", width: "80px", cell: (g) => <strong class="num">{g.count.toLocaleString("en")}</strong> },
  { head: "workflow", width: "minmax(120px, 1fr)", cell: (g) => <a href={`${link("dead-letters")}?${new URLSearchParams({ workflow: g.workflow, view: "list" })}`}>{g.workflow}</a> },
  { head: "endpoint", width: "minmax(110px, 1fr)", cell: (g) => (g.endpoint ? <a href={link("endpoints", g.endpoint)}>{g.endpoint}</a> : <span class="dim">workers</span>) },
  { head: "error", width: "minmax(200px, 3fr)", cell: (g) => <Name mono>{g.error}</Name> },
  { head: "last", width: "minmax(180px, 1.2fr)", cell: (g) => <Clock at={g.last_at} relative /> },
  { head: "one of them", width: "90px", cell: (g) => <a href={link("ticks", g.sample_tick_id)}>Open</a> },
  {
    head: "replay",
    width: "100px",
    cell: (g) => (
      <Action kind="quiet" scope="tenant:admin" label={`Replay the workflow ${g.workflow}`} onClick={() => ask({ workflow: g.workflow })}>
        Replay…
      </Action>
    ),
  },
];

/** Ticks that failed for good, first by what went wrong. */
export default function DeadLetters() {
  const [query, change] = useParams();
  const [asked, ask] = useState<Filtered | null>(null);
  const single = query.view === "list";
  const picked = Object.fromEntries(names.filter((n) => query[n]).map((n) => [n, query[n]]));
  const groups = useQuery({
    key: ["dead-groups", picked],
    fn: (signal) => read("/v1/admin/dead-letters/groups", { query: picked as never, signal }),
    every: POLL * 2,
    on: !single,
    keep: true,
  });
  const list = useList<Tick>({
    key: ["dead-letters", picked],
    fn: (cursor, signal) => read("/v1/admin/dead-letters", { query: { ...picked, limit: 100, cursor } as never, signal }) as Promise<Page<Tick>>,
    on: single,
  });
  const none = (
    <Empty title="No dead letter" cli="carillon dead-letter list">
      A tick becomes a dead letter when all its attempts failed. It waits here until somebody replays it or its retention ends.
    </Empty>
  );
  return (
    <div class="stack">
      <Head title="Dead letters" sub="Ticks whose attempts are used up">
        <fieldset class="switch">
          <legend class="hidden">View</legend>
          {["groups", "list"].map((v) => (
            <button type="button" class="button" key={v} aria-pressed={single === (v === "list")} onClick={() => change({ view: v === "list" ? "list" : undefined })}>
              {v === "list" ? "Single ticks" : "By error"}
            </button>
          ))}
        </fieldset>
        <Action scope="tenant:admin" onClick={() => ask(picked)}>
          {Object.keys(picked).length > 0 ? "Replay all that match" : "Replay all"}
        </Action>
      </Head>
      <Filters of={filters} />
      <Panel bare>
        {single ? (
          <Table label="Dead letters" columns={columns} rows={list.rows} id={(t) => t.tick_id} href={(t) => link("ticks", t.tick_id)} list={list} empty={none} />
        ) : (
          <Await of={groups}>
            {(g) => (
              <>
                <Table label="Groups of dead letters" columns={groupColumns(ask)} rows={g.items} id={(x) => x.sample_tick_id} empty={none} />
                {g.truncated && <p class="skeleton">Only the latest 10,000 dead letters are grouped.</p>}
              </>
            )}
          </Await>
        )}
      </Panel>
      {asked && <Replay filter={asked} onClose={() => ask(null)} />}
    </div>
  );
}

/** Shows how many would be delivered again, and begins the operation. */
function Replay({ filter, onClose }: { filter: Filtered; onClose: () => void }) {
  const plan = useQuery({
    key: ["dead-replay", filter],
    fn: async (signal) => (await call("post", "/v1/admin/dead-letters/replay", { body: { filter, dry_run: true } as never, signal })).value as unknown as { matched: number; sample: Tick[] },
  });
  const n = plan.data?.matched ?? 0;
  return (
    <Dialog
      title="Replay dead letters"
      verb={`Deliver ${n.toLocaleString("en")} again`}
      why={!plan.data ? "The number is being read." : n === 0 ? "No dead letter matches." : ""}
      onClose={onClose}
      onSend={async (intent) => {
        const got = await call("post", "/v1/admin/dead-letters/replay", { body: { filter } as never, intent });
        const op = got.value as unknown as { id: string };
        toast("The replay has begun.", { href: link("operations", op.id), text: "Follow it" });
        refresh();
      }}
    >
      <Problem error={plan.error} retry={() => plan.refetch()} />
      {plan.data && (
        <>
          <p>
            <strong class="num">{n.toLocaleString("en")}</strong> ticks are delivered again, newest first, at most {pace} a second: this takes about {lasting((n / pace) * 1000)}. Each keeps its
            tick_id and its payload.
          </p>
          <ul class="dim">
            {plan.data.sample.slice(0, 5).map((t) => (
              <li key={t.tick_id}>
                {t.workflow} / <Name>{t.key}</Name>
              </li>
            ))}
            {n > 5 && <li>… and {(n - 5).toLocaleString("en")} more</li>}
          </ul>
        </>
      )}
    </Dialog>
  );
}
