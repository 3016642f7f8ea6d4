import { type Answer, read } from "../../call";
import { Action, Await, Copy, Empty, Head, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { type Filter, Filters } from "../../parts/filters";
import { type Column, Table } from "../../parts/table";
import { useQuery } from "../../query";
import { refused } from "../../session";
import { link, useParams } from "../../url";

type Zone = Answer<"/v1/zones">["items"][number] & { used?: number };

const filters: Filter[] = [
  { name: "q", label: "name contains", always: true, hint: "york" },
  { name: "which", label: "show", always: true, values: ["all"] },
];

const schedulesIn = (zone: string) => `${link("schedules")}?${new URLSearchParams({ timezone: zone })}`;
const zonePage = (zone: string) => `${link("zones")}?${new URLSearchParams({ zone })}`;

const columns: Column<Zone>[] = [
  { head: "zone", width: "minmax(170px, 2fr)", cell: (z) => <a href={zonePage(z.timezone)}>{z.timezone}</a> },
  {
    head: "active schedules",
    width: "minmax(120px, 1fr)",
    cell: (z) =>
      z.used ? (
        <a class="num" href={schedulesIn(z.timezone)}>
          {z.used.toLocaleString("en")}
        </a>
      ) : (
        <span class="dim">–</span>
      ),
  },
  {
    head: "offset now",
    width: "minmax(120px, 1fr)",
    cell: (z) => (
      <span>
        <span class="num">{z.offset}</span> <span class="dim">{z.abbreviation}</span>
      </span>
    ),
  },
  {
    head: "next change",
    width: "minmax(220px, 2fr)",
    cell: (z) =>
      z.next_change ? (
        <span>
          <Clock at={z.next_change.at} /> <span class="dim num">to {z.next_change.offset}</span>
        </span>
      ) : (
        <span class="dim">none is known</span>
      ),
  },
];

/** The zones that active schedules use, or all, with their offset and next change. */
export default function Zones() {
  const [query] = useParams();
  const hidden = refused("tenant:read");
  const zones = useQuery({ key: ["zones"], fn: (signal) => read("/v1/zones", { signal }) });
  const use = useQuery({ key: ["zones", "use"], fn: (signal) => read("/v1/admin/forecast", { query: { hours: 1, group: "timezone" }, signal }), on: !hidden });
  const used = new Map((use.data?.groups ?? []).map((g) => [g.timezone ?? "", Number(g.count)]));
  const all = query.which === "all" || hidden !== "" || Boolean(query.q);
  const text = (query.q ?? "").toLowerCase().replaceAll(" ", "_");
  const shown = (zones.data?.items ?? [])
    .map((z): Zone => ({ ...z, used: used.get(z.timezone) }))
    .filter((z) => (all || z.used) && z.timezone.toLowerCase().includes(text))
    .sort((a, b) => (b.used ?? 0) - (a.used ?? 0));
  return (
    <div class="stack">
      <Head title="Zones" sub={zones.data ? `tzdata ${zones.data.tzdata}, as the schedules are timed. ${all ? "All zones" : "Those that active schedules use"}` : "As the schedules are timed"}>
        <Action href={link("dst")}>What clock changes do</Action>
      </Head>
      <Filters of={filters} />
      {query.zone && <Transitions zone={query.zone} />}
      <Await of={zones}>
        {() => (
          <Panel bare>
            <Table
              label="Zones"
              columns={columns}
              rows={use.isPending && !hidden ? [] : shown}
              id={(z) => z.timezone}
              href={(z) => zonePage(z.timezone)}
              empty={
                use.isPending && !hidden ? (
                  <p class="skeleton">Reading…</p>
                ) : (
                  <Empty title={query.q ? "No zone has this in its name" : "No active schedule has a zone"}>
                    {query.q ? "Zones have the names of the tz database, such as America/New_York." : "Show all zones, or make a schedule."}
                  </Empty>
                )
              }
            />
          </Panel>
        )}
      </Await>
    </div>
  );
}

/** When the clock of a zone changes in the next five years. */
function Transitions({ zone }: { zone: string }) {
  const [, change] = useParams();
  const got = useQuery({ key: ["zone", zone], fn: (signal) => read("/v1/zones/{timezone}", { path: { timezone: zone }, signal }) });
  return (
    <Panel
      title={zone}
      tools={
        <>
          <Copy text={zone} label="Copy the name" />
          <Action href={schedulesIn(zone)}>Its schedules</Action>
          <Action kind="quiet" onClick={() => change({ zone: undefined })}>
            Close
          </Action>
        </>
      }
    >
      <Await of={got}>
        {(z) =>
          z.transitions.length === 0 ? (
            <p>Its clock does not change in the next five years, by tzdata {z.tzdata}.</p>
          ) : (
            <div class="scroll" tabIndex={0} role="region" aria-label={`Clock changes of ${zone}`}>
              <table>
                <thead>
                  <tr>
                    <th scope="col">at</th>
                    <th scope="col">offset before</th>
                    <th scope="col">offset after</th>
                    <th scope="col">name after</th>
                  </tr>
                </thead>
                <tbody>
                  {z.transitions.map((t) => (
                    <tr key={t.at}>
                      <td>
                        <Clock at={t.at} zone={zone} />
                      </td>
                      <td class="num">{t.before}</td>
                      <td class="num">{t.after}</td>
                      <td>{t.abbreviation}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )
        }
      </Await>
    </Panel>
  );
}
