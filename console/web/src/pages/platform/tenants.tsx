import { useState } from "preact/hooks";
import type { components } from "../../api.gen";
import { call, read } from "../../call";
import { now } from "../../live";
import { Action, Empty, Field, Figure, Head, Panel } from "../../parts/basic";
import { Confirm, Dialog } from "../../parts/dialog";
import { type Column, Table } from "../../parts/table";
import { type Page, refresh, useList, useQuery } from "../../query";
import { dateOf } from "../../time";
import { toast } from "../../toast";

type Tenant = components["schemas"]["TenantPage"]["items"][number];
type Use = components["schemas"]["TenantUse"];
type Asked = { tenant: Tenant; verb: "suspend" | "erase" } | null;

const mebibytes = (n?: number) => (n === undefined ? <span class="dim">–</span> : <span class="num">{(Number(n) / 2 ** 20).toFixed(1)} MiB</span>);

const columns = (use: Map<string, Use>, ask: (a: Asked) => void): Column<Tenant>[] => [
  { head: "tenant", width: "minmax(140px, 1.5fr)", cell: (t) => <strong>{t.name}</strong> },
  { head: "status", width: "110px", cell: (t) => t.status },
  { head: "schedules", width: "100px", cell: (t) => <Figure of={use.get(t.name)?.schedules} /> },
  { head: "ticks today", width: "100px", cell: (t) => <Figure of={use.get(t.name)?.ticks} /> },
  { head: "failed today", width: "100px", cell: (t) => <Figure of={use.get(t.name)?.failed} /> },
  { head: "stored", width: "100px", cell: (t) => mebibytes(use.get(t.name)?.stored_bytes) },
  {
    head: "actions",
    width: "200px",
    cell: (t) => (
      <span class="buttons nowrap">
        <Action kind="quiet" scope="platform:admin" label={`${t.status === "active" ? "Suspend" : "Continue"} ${t.name}`} onClick={() => ask({ tenant: t, verb: "suspend" })}>
          {t.status === "active" ? "Suspend" : "Continue"}
        </Action>
        <Action kind="danger" scope="platform:admin" label={`Erase ${t.name}`} onClick={() => ask({ tenant: t, verb: "erase" })}>
          Erase
        </Action>
      </span>
    ),
  },
];

/** All tenants with their use of today. */
export default function Tenants() {
  const [asked, ask] = useState<Asked>(null);
  const [making, make] = useState(false);
  const list = useList<Tenant>({
    key: ["tenants"],
    fn: (cursor, signal) => read("/v1/platform/tenants", { query: { limit: 100, cursor } as never, signal }) as Promise<Page<Tenant>>,
  });
  const day = dateOf(now());
  const usage = useQuery({ key: ["platform-usage", day], fn: (signal) => read("/v1/platform/usage", { query: { day, limit: 1000 }, signal }) });
  const use = new Map((usage.data?.items ?? []).map((u) => [u.tenant, u]));
  const close = () => ask(null);
  const t = asked?.tenant;
  const suspend = t?.status === "active";
  return (
    <div class="stack">
      <Head title="Tenants" sub="Use of today, by day of UTC">
        <Action scope="platform:admin" onClick={() => make(true)}>
          New tenant
        </Action>
      </Head>
      <Panel bare>
        <Table
          label="Tenants"
          columns={columns(use, ask)}
          rows={list.rows}
          id={(x) => x.name}
          list={list}
          empty={
            <Empty title="No tenant" cli="carillon platform tenant put acme">
              A tenant is one customer, with its own schedules, quotas and keys.
            </Empty>
          }
        />
      </Panel>
      {making && <Make onClose={() => make(false)} />}
      {t && asked?.verb === "suspend" && (
        <Confirm
          title={`${suspend ? "Suspend" : "Continue"} ${t.name}`}
          verb={suspend ? "Suspend it" : "Continue it"}
          danger={suspend}
          type={suspend ? t.name : undefined}
          onClose={close}
          onSend={async () => {
            await call("patch", "/v1/platform/tenants/{tenant}", { path: { tenant: t.name }, body: { status: suspend ? "suspended" : "active" } as never });
            toast(`${t.name} is ${suspend ? "suspended" : "active"}.`);
            refresh(["tenants"]);
          }}
        >
          <p>{suspend ? "Its schedules stop firing, and its tokens are refused, until it is active again." : "Its schedules fire again. Times that passed follow their missed policy."}</p>
        </Confirm>
      )}
      {t && asked?.verb === "erase" && (
        <Confirm
          title={`Erase ${t.name}`}
          verb="Erase for good"
          type={t.name}
          onClose={close}
          onSend={async () => {
            await call("delete", "/v1/platform/tenants/{tenant}", { path: { tenant: t.name } });
            toast(`${t.name} is being erased.`);
            refresh(["tenants"]);
          }}
        >
          <p>Everything of the tenant is deleted: schedules, ticks, endpoints, keys and its audit. This cannot be undone.</p>
        </Confirm>
      )}
    </div>
  );
}

function Make({ onClose }: { onClose: () => void }) {
  const [name, type] = useState("");
  return (
    <Dialog
      title="New tenant"
      verb="Make the tenant"
      why={name ? "" : "Name it first."}
      onClose={onClose}
      onSend={async () => {
        await call("put", "/v1/platform/tenants/{tenant}", { path: { tenant: name }, body: {} as never, ifNoneMatch: "*" });
        toast(`${name} is made, with the default quotas.`);
        refresh(["tenants"]);
      }}
    >
      <Field label="Name" hint="Letters, digits, dots, underscores and hyphens.">
        {(p) => <input {...p} value={name} maxLength={128} onInput={(e) => type(e.currentTarget.value)} autocomplete="off" spellcheck={false} />}
      </Field>
    </Dialog>
  );
}
