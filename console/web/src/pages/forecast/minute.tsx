import { useState } from "preact/hooks";
import { type Answer, read } from "../../call";
import { Action, Await, Field, Figure, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Many } from "../../parts/many";
import { type Column, Table } from "../../parts/table";
import { useQuery } from "../../query";
import { link } from "../../url";

type Group = NonNullable<Answer<"/v1/admin/forecast">["groups"]>[number];

const columns = (spread: (g: Group) => void): Column<Group>[] => [
  { head: "ticks", width: "90px", cell: (g) => <Figure of={g.count} /> },
  {
    head: "workflow",
    width: "minmax(120px, 1fr)",
    cell: (g) => <a href={`${link("schedules")}?${new URLSearchParams({ workflow: g.workflow ?? "", timezone: g.timezone ?? "" })}`}>{g.workflow}</a>,
  },
  { head: "zone", width: "minmax(120px, 1fr)", cell: (g) => g.timezone ?? "" },
  { head: "when", width: "minmax(180px, 2fr)", cell: (g) => g.reading ?? "" },
  {
    head: "jitter",
    width: "110px",
    cell: (g) => (
      <Action kind="quiet" scope="schedules:write" label={`Spread ${g.workflow} in ${g.timezone}`} onClick={() => spread(g)}>
        Spread…
      </Action>
    ),
  },
];

interface Props {
  at: string;
  workflow?: string;
  /** The jitter with which no tick of the minute waits for the quota, if some do. */
  jitter?: string;
}

/** What is due in one minute, and how to spread it. */
export function Minute({ at, workflow, jitter }: Props) {
  const [asked, ask] = useState<Group | null>(null);
  const content = useQuery({
    key: ["forecast-minute", at, workflow],
    fn: (signal) => read("/v1/admin/forecast", { query: { group: "workflow,timezone,timing", at, workflow }, signal }),
    keep: true,
  });
  return (
    <Panel
      bare
      title={
        <>
          In the minute of <Clock at={at} />
        </>
      }
    >
      <Await of={content}>
        {(f) => (
          <Table
            label="What is in this minute"
            columns={columns(ask)}
            rows={f.groups ?? []}
            id={(g) => `${g.workflow} ${g.timezone} ${g.reading}`}
            empty={<p class="skeleton">Nothing is due in this minute.</p>}
          />
        )}
      </Await>
      {asked && <Spread group={asked} jitter={jitter ?? "2m"} onClose={() => ask(null)} />}
    </Panel>
  );
}

const lengths = ["0s", "30s", "1m", "2m", "5m", "10m", "15m", "30m", "1h"];

/** Gives the schedules of a workflow in a zone a jitter. */
function Spread({ group, jitter, onClose }: { group: Group; jitter: string; onClose: () => void }) {
  const [length, set] = useState(jitter);
  return (
    <Many
      title={`Spread ${group.workflow} in ${group.timezone}`}
      verb="Spread"
      plan={{ action: "patch", filter: { workflow: group.workflow, timezone: group.timezone }, patch: { spec: { jitter: length } } }}
      onClose={onClose}
    >
      <p>
        Each schedule of {group.workflow} in {group.timezone} fires at a moment of its own within the jitter behind its time: always the same one. This holds for all of them, not only for those{" "}
        {group.reading}.
      </p>
      <Field label="Jitter">
        {(p) => (
          <select {...p} class="select" value={length} onChange={(e) => set(e.currentTarget.value)}>
            {(lengths.includes(jitter) ? lengths : [jitter, ...lengths]).map((l) => (
              <option key={l} value={l}>
                {l === "0s" ? "none" : l}
              </option>
            ))}
          </select>
        )}
      </Field>
    </Many>
  );
}
