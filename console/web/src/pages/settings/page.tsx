import { useState } from "preact/hooks";
import { call, read } from "../../call";
import { Action, Await, Field, Head, Name, Panel, Problem } from "../../parts/basic";
import { refresh, useQuery } from "../../query";
import { refused } from "../../session";
import { zones } from "../../time";
import { toast } from "../../toast";
import { link } from "../../url";
import { Keys } from "./keys";

/** API keys, the fallback zone, and who issues the tenant's tokens. */
export default function Settings() {
  return (
    <div class="stack">
      <Head title="Settings" sub="Of the whole tenant" />
      <Keys />
      <div class="grid">
        <Fallback />
        <Issuers />
      </div>
    </div>
  );
}

/** The zone of subjects that have no profile. */
function Fallback() {
  const settings = useQuery({ key: ["settings"], fn: (signal) => call("get", "/v1/admin/settings", { signal }) });
  return (
    <Panel title="Fallback zone">
      <Await of={settings}>{(got) => <FallbackForm key={got.etag} etag={got.etag} zone={got.value.fallback_timezone ?? ""} />}</Await>
    </Panel>
  );
}

function FallbackForm({ etag, zone }: { etag: string; zone: string }) {
  const [typed, type] = useState(zone);
  const [error, fail] = useState<unknown>(null);
  const save = async () => {
    fail(null);
    try {
      const got = await call("patch", "/v1/admin/settings", { body: { fallback_timezone: typed || null } as never, ifMatch: etag });
      const op = got.value.operation;
      toast(op ? "Saved. An operation retimes the schedules." : "Saved.", op && { href: link("operations", op.id), text: "Follow it" });
      refresh(["settings"]);
    } catch (problem) {
      fail(problem);
    }
  };
  return (
    <form
      class="stack"
      onSubmit={(e) => {
        e.preventDefault();
        save();
      }}
    >
      <Field label="Zone of subjects without a profile" hint="Schedules whose zone is @subject use it. A workflow can have its own. Empty: such schedules are refused.">
        {(p) => (
          <>
            <input {...p} list="fallback-zones" value={typed} onInput={(e) => type(e.currentTarget.value)} autocomplete="off" spellcheck={false} />
            <datalist id="fallback-zones">
              {(zones.value?.items ?? []).map((z) => (
                <option key={z.timezone} value={z.timezone} />
              ))}
            </datalist>
          </>
        )}
      </Field>
      <Problem error={error} />
      <div class="buttons">
        <Action type="submit" scope="tenant:admin" why={refused("tenant:admin") || (typed === zone ? "Nothing is changed yet." : "")}>
          Save
        </Action>
      </div>
    </form>
  );
}

/** The issuers whose tokens the tenant's requests may carry. They are set by the API or the command line. */
function Issuers() {
  const issuers = useQuery({ key: ["issuers"], fn: (signal) => read("/v1/admin/issuers", { signal }) });
  return (
    <Panel title="Issuers of tokens">
      <Await of={issuers}>
        {(list) =>
          list.issuers.length === 0 ? (
            <p class="dim">None: requests carry API keys, or tokens of the platform.</p>
          ) : (
            <ul>
              {list.issuers.map((i) => (
                <li key={i.issuer}>
                  <Name mono>{i.issuer}</Name> <span class="dim">set by the {i.set_by}</span>
                </li>
              ))}
            </ul>
          )
        }
      </Await>
    </Panel>
  );
}
