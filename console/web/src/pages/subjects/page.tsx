import { useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import type { components } from "../../api.gen";
import { read } from "../../call";
import { Action, Empty, Head, Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { type Filter, Filters } from "../../parts/filters";
import { Labels } from "../../parts/outcome";
import { type Column, Table } from "../../parts/table";
import { type Page, useList } from "../../query";
import { link, useParams } from "../../url";
import { quietly } from "./quiet";

type Subject = components["schemas"]["Subject"];

const filters: Filter[] = [{ name: "subject_prefix", label: "subject begins with", always: true }];

const columns: Column<Subject>[] = [
  {
    head: "subject",
    width: "minmax(160px, 2fr)",
    cell: (s) => (
      <a href={link("subjects", s.subject)}>
        <Name>{s.subject}</Name>
      </a>
    ),
  },
  { head: "zone", width: "minmax(140px, 1fr)", cell: (s) => s.timezone },
  { head: "quiet hours", width: "minmax(180px, 2fr)", cell: (s) => <span class={s.quiet_hours ? "" : "dim"}>{quietly(s.quiet_hours)}</span> },
  { head: "labels", width: "minmax(120px, 1fr)", cell: (s) => <Labels of={s.labels} /> },
  { head: "changed", width: "minmax(180px, 1fr)", cell: (s) => <Clock at={s.updated_at} relative /> },
];

/** The profiles of subjects, and a box that opens any subject. */
export default function Subjects() {
  const [query] = useParams();
  const { route } = useLocation();
  const [name, type] = useState("");
  const prefix = query.subject_prefix || undefined;
  const list = useList<Subject>({
    key: ["subjects", prefix],
    fn: (cursor, signal) => read("/v1/subjects", { query: { subject_prefix: prefix, limit: 100, cursor }, signal }) as Promise<Page<Subject>>,
  });
  return (
    <div class="stack">
      <Head title="Subjects" sub="The people and things that schedules are for">
        <form
          class="buttons"
          onSubmit={(e) => {
            e.preventDefault();
            if (name) route(link("subjects", name));
          }}
        >
          <input class="input" aria-label="Open a subject" placeholder="user_123" value={name} onInput={(e) => type(e.currentTarget.value)} autocomplete="off" spellcheck={false} />
          <Action type="submit" why={name ? "" : "Type the name of a subject first."}>
            Open
          </Action>
        </form>
      </Head>
      <Filters of={filters} />
      <Panel bare>
        <Table
          label="Subjects"
          columns={columns}
          rows={list.rows}
          id={(s) => s.subject}
          href={(s) => link("subjects", s.subject)}
          list={list}
          empty={
            prefix ? (
              <Empty title="No profile matches">A subject without a profile is not in this list. Type its name above to open it.</Empty>
            ) : (
              <Empty
                title="No subject has a profile"
                curl={`curl -X PUT "$CARILLON_URL/v1/subjects/user_123" -H "Authorization: Bearer $CARILLON_API_KEY" \\\n  -H 'Content-Type: application/json' -d '{"timezone": "America/New_York"}'`}
                cli="carillon subject put user_123 --timezone America/New_York"
              >
                A profile holds the time zone and the quiet hours of a subject. Schedules whose zone is @subject follow it.
              </Empty>
            )
          }
        />
      </Panel>
    </div>
  );
}
