import { useState } from "preact/hooks";
import type { components } from "../../api.gen";
import { call, read } from "../../call";
import { Action, Command, complaint, Empty, Field, Name, Panel } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Confirm, Dialog } from "../../parts/dialog";
import { type Column, Table } from "../../parts/table";
import { type Page, refresh, useList } from "../../query";
import { instantOf, mine } from "../../time";

type Key = components["schemas"]["APIKey"];

/** What each scope allows, in words. */
const scopes: [string, string][] = [
  ["schedules:read", "read schedules, ticks, workflows and endpoints"],
  ["schedules:write", "change schedules and workflows"],
  ["ticks:work", "lease and finish ticks"],
  ["endpoints:write", "change endpoints and their secrets"],
  ["subjects:erase", "erase all that is stored of a subject"],
  ["tenant:read", "look at everything here, but at no payload"],
  ["tenant:admin", "everything in this tenant"],
];

const columns = (rotate: (k: Key) => void, revoke: (k: Key) => void): Column<Key>[] => [
  { head: "name", width: "minmax(130px, 1.2fr)", cell: (k) => <Name>{k.name}</Name> },
  { head: "scopes", width: "minmax(180px, 2fr)", cell: (k) => <span title={k.scopes.join(", ")}>{k.scopes.join(", ")}</span> },
  { head: "last used", width: "minmax(180px, 1fr)", cell: (k) => (k.last_used_at ? <Clock at={k.last_used_at} relative /> : <span class="dim">never</span>) },
  { head: "expires", width: "minmax(180px, 1fr)", cell: (k) => (k.expires_at ? <Clock at={k.expires_at} relative /> : <span class="dim">never</span>) },
  {
    head: "actions",
    width: "190px",
    cell: (k) => (
      <span class="buttons nowrap">
        <Action kind="quiet" scope="tenant:admin" label={`Rotate ${k.name}`} onClick={() => rotate(k)}>
          Rotate
        </Action>
        <Action kind="danger" scope="tenant:admin" label={`Revoke ${k.name}`} onClick={() => revoke(k)}>
          Revoke
        </Action>
      </span>
    ),
  },
];

/** The API keys of the tenant: make, rotate and revoke. */
export function Keys() {
  const [making, make] = useState(false);
  const [rotating, rotate] = useState<Key | null>(null);
  const [revoking, revoke] = useState<Key | null>(null);
  const [made, show] = useState<Key | null>(null);
  const list = useList<Key>({
    key: ["api-keys"],
    fn: (cursor, signal) => read("/v1/admin/api-keys", { query: { limit: 100, cursor }, signal }) as Promise<Page<Key>>,
  });
  const done = (k: Key) => {
    show(k);
    refresh(["api-keys"]);
  };
  return (
    <Panel
      bare
      title="API keys"
      tools={
        <Action scope="tenant:admin" onClick={() => make(true)}>
          New key
        </Action>
      }
    >
      <Table
        label="API keys"
        columns={columns(rotate, revoke)}
        rows={list.rows}
        id={(k) => k.id}
        list={list}
        empty={
          <Empty title="No API key" cli={'carillon admin api-key make worker --scopes "ticks:work schedules:read"'}>
            Programs sign in with an API key. Give each one its own, with only the scopes that it needs.
          </Empty>
        }
      />
      {making && <Make onClose={() => make(false)} onMade={done} />}
      {rotating && (
        <Confirm
          title={`Rotate ${rotating.name}`}
          danger={false}
          verb="Issue a new secret"
          onClose={() => rotate(null)}
          onSend={async (intent) => done((await call("post", "/v1/admin/api-keys/{id}/rotate", { path: { id: rotating.id }, intent })).value as Key)}
        >
          <p>The new secret is shown once. The old one stays valid for 24 hours, so that you can change your programs first.</p>
        </Confirm>
      )}
      {revoking && (
        <Confirm
          title={`Revoke ${revoking.name}`}
          verb="Revoke it"
          type={revoking.name}
          onClose={() => revoke(null)}
          onSend={async () => {
            await call("delete", "/v1/admin/api-keys/{id}", { path: { id: revoking.id } });
            refresh(["api-keys"]);
          }}
        >
          <p>Programs and sessions that use it are refused within 5 seconds.</p>
        </Confirm>
      )}
      {made?.key && (
        <Dialog title={`The key ${made.name}`} onClose={() => show(null)}>
          <p>Copy it now: it is shown only here, and only once.</p>
          <Command text={made.key} />
        </Dialog>
      )}
    </Panel>
  );
}

function Make({ onClose, onMade }: { onClose: () => void; onMade: (k: Key) => void }) {
  const [name, type] = useState("");
  const [chosen, choose] = useState<string[]>(["schedules:read"]);
  const [workflows, limit] = useState("");
  const [expires, until] = useState("");
  const [error, fail] = useState<unknown>(null);
  const only = workflows.split(/[\s,]+/).filter(Boolean);
  return (
    <Dialog
      title="New API key"
      verb="Make the key"
      why={!name ? "Name it first." : chosen.length === 0 ? "Choose a scope first." : ""}
      onClose={onClose}
      onSend={async (intent) => {
        try {
          const body = { name, scopes: chosen, ...(only.length > 0 ? { workflows: only } : {}), ...(expires ? { expires_at: instantOf(expires, mine) } : {}) };
          onMade((await call("post", "/v1/admin/api-keys", { body: body as never, intent })).value as Key);
        } catch (problem) {
          fail(problem);
          throw problem;
        }
      }}
    >
      <Field label="Name" hint="What uses it, such as digest-worker." wrong={complaint(error, "/name")}>
        {(p) => <input {...p} value={name} maxLength={128} onInput={(e) => type(e.currentTarget.value)} autocomplete="off" />}
      </Field>
      <fieldset class="stack window">
        <legend>Scopes</legend>
        {scopes.map(([scope, words]) => (
          <label class="check" key={scope}>
            <input type="checkbox" checked={chosen.includes(scope)} onChange={(e) => choose(e.currentTarget.checked ? [...chosen, scope] : chosen.filter((s) => s !== scope))} />
            <span>
              <code>{scope}</code> <span class="dim">{words}</span>
            </span>
          </label>
        ))}
      </fieldset>
      <Field label="Only these workflows" hint="Names with spaces between them. Empty: all." wrong={complaint(error, "/workflows")}>
        {(p) => <input {...p} value={workflows} onInput={(e) => limit(e.currentTarget.value)} autocomplete="off" spellcheck={false} />}
      </Field>
      <Field label="Expires" hint={`Empty: never. By the clock of ${mine}.`} wrong={complaint(error, "/expires_at")}>
        {(p) => <input {...p} type="datetime-local" value={expires} onInput={(e) => until(e.currentTarget.value)} />}
      </Field>
    </Dialog>
  );
}
