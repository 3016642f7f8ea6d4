import { useState } from "preact/hooks";
import type { components } from "../../api.gen";
import { call, type Got, read } from "../../call";
import { complaint, Field } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Dialog } from "../../parts/dialog";
import { Diff } from "../../parts/json";
import { Policies, type PoliciesOf } from "../../parts/policies";
import { useRival } from "../../parts/rival";
import { refresh, useQuery } from "../../query";
import { needZones, zones } from "../../time";
import { toast } from "../../toast";
import type { Workflow } from "./page";

type Body = components["schemas"]["WorkflowParams"];

const at = "/v1/workflows/{workflow}" as const;

/** What a PUT of a stored workflow would say. */
const bodyOf = (w?: Workflow): Body => ({
  endpoint: w?.endpoint ?? null,
  version: w?.version ?? null,
  max_running: w?.max_running ?? null,
  rate: w?.rate ?? null,
  expect: w?.expect ?? null,
  fallback_timezone: w?.fallback_timezone ?? null,
  defaults: w?.defaults ?? {},
});

/** Removes what is empty from an object; null if nothing is left. */
function filled<T extends object>(of: T): T | null {
  const kept = Object.entries(of).filter(([, v]) => v !== undefined && v !== "");
  return kept.length ? (Object.fromEntries(kept) as T) : null;
}

interface Props {
  stored?: Got<Workflow>;
  onClose: () => void;
  onSaved?: (name: string) => void;
}

/** Registers a workflow, or changes a stored one, after a look at what differs. */
export function Form({ stored: newest, onClose, onSaved }: Props) {
  const [stored] = useState(newest); // the page behind reads it again; the form saves a change of what it began with
  needZones();
  const [name, setName] = useState(stored?.value.name ?? "");
  const [body, set] = useState(bodyOf(stored?.value));
  const [error, fail] = useState<unknown>(null);
  const endpoints = useQuery({ key: ["endpoint-names"], fn: (signal) => read("/v1/endpoints", { query: { limit: 1000 }, signal }) });
  const { rival, save } = useRival<Workflow>(stored?.etag ?? "", () => call("get", at, { path: { workflow: name } }) as Promise<Got<Workflow>>);
  const before = rival ? bodyOf(rival.value) : stored ? bodyOf(stored.value) : {};
  const change = (part: Partial<Body>) => set({ ...body, ...part });
  const number = (text: string) => (text === "" ? null : Number(text));
  const defaults: PoliciesOf = { policy: (body.defaults?.policy ?? {}) as Record<string, unknown>, delivery: (body.defaults?.delivery ?? {}) as Record<string, unknown> };
  const names = (endpoints.data?.items ?? []).map((e) => e.name);
  const shown = body.endpoint && !names.includes(body.endpoint) ? [body.endpoint, ...names] : names;
  return (
    <Dialog
      wide
      title={stored ? `Change ${name}` : "New workflow"}
      verb={rival ? "Replace theirs" : "Save"}
      danger={rival !== null}
      why={name ? "" : "Name it first."}
      onClose={onClose}
      onSend={async () => {
        try {
          await save((condition) => call("put", at, { path: { workflow: name }, body, ...condition }));
        } catch (problem) {
          fail(problem);
          throw problem;
        }
        toast(`The workflow ${name} is saved.`);
        await refresh(["workflows"]);
        await refresh(["workflow", name]);
        onSaved?.(name);
      }}
    >
      {!stored && (
        <Field label="Name" hint="Schedules name it, such as daily-digest." wrong={complaint(error, "/workflow")}>
          {(p) => <input {...p} value={name} onInput={(e) => setName(e.currentTarget.value)} autocomplete="off" spellcheck={false} />}
        </Field>
      )}
      <div class="two">
        <Field label="Ticks go to" hint="An endpoint is sent signed requests. Workers ask for ticks by themselves." wrong={complaint(error, "/endpoint")}>
          {(p) => (
            <select {...p} value={body.endpoint ?? ""} onChange={(e) => change({ endpoint: e.currentTarget.value || null })}>
              <option value="">workers that lease them</option>
              {shown.map((n) => (
                <option key={n} value={n}>
                  endpoint {n}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field label="Version" hint="Handed to workers with each tick. Empty: none." wrong={complaint(error, "/version")}>
          {(p) => <input {...p} value={body.version ?? ""} spellcheck={false} onInput={(e) => change({ version: e.currentTarget.value || null })} />}
        </Field>
        <Field label="Running at once, at most" hint="The others wait. Empty: no limit." wrong={complaint(error, "/max_running")}>
          {(p) => <input {...p} type="number" min={1} value={body.max_running ?? ""} onInput={(e) => change({ max_running: number(e.currentTarget.value) })} />}
        </Field>
        <Field label="Fallback zone" hint="Of schedules that follow a subject without a profile. Empty: the tenant's." wrong={complaint(error, "/fallback_timezone")}>
          {(p) => <input {...p} list="workflow-zones" value={body.fallback_timezone ?? ""} spellcheck={false} onInput={(e) => change({ fallback_timezone: e.currentTarget.value || null })} />}
        </Field>
        <Field label="Ticks a second" hint="Late ticks go out in the order of their times. Empty: no limit." wrong={complaint(error, "/rate/per_second")}>
          {(p) => (
            <input
              {...p}
              type="number"
              min={1}
              value={body.rate?.per_second ?? ""}
              onInput={(e) => {
                const n = number(e.currentTarget.value);
                change({ rate: n === null ? null : { ...body.rate, per_second: n } });
              }}
            />
          )}
        </Field>
        <Field label="Ramp" hint="After a pause the rate rises over this time, such as 5m." wrong={complaint(error, "/rate/ramp")}>
          {(p) => (
            <input
              {...p}
              value={body.rate?.ramp ?? ""}
              disabled={!body.rate}
              spellcheck={false}
              onInput={(e) => body.rate && change({ rate: { ...body.rate, ramp: e.currentTarget.value || undefined } })}
            />
          )}
        </Field>
        <Field label="Handed out within" hint="From the nominal time. Above it, workflow.late is sent. Empty: not watched." wrong={complaint(error, "/expect/handed_out_within")}>
          {(p) => (
            <input
              {...p}
              value={body.expect?.handed_out_within ?? ""}
              placeholder="30s"
              spellcheck={false}
              onInput={(e) => change({ expect: filled({ ...body.expect, handed_out_within: e.currentTarget.value }) })}
            />
          )}
        </Field>
        <Field label="Ended within" hint="From the nominal time. Empty: not watched." wrong={complaint(error, "/expect/ended_within")}>
          {(p) => (
            <input
              {...p}
              value={body.expect?.ended_within ?? ""}
              placeholder="5m"
              spellcheck={false}
              onInput={(e) => change({ expect: filled({ ...body.expect, ended_within: e.currentTarget.value }) })}
            />
          )}
        </Field>
      </div>
      <datalist id="workflow-zones">
        {zones.value?.items.map((z) => (
          <option key={z.timezone} value={z.timezone} />
        ))}
      </datalist>
      <details>
        <summary>Defaults of its schedules</summary>
        <p class="dim">Schedules that do not say otherwise follow a change at once. Another default for times that passed moves them by an operation.</p>
        <Policies of={defaults} onChange={(part) => change({ defaults: filled({ ...body.defaults, ...part }) ?? {} })} error={error} at="/defaults" unset="the built-in value" />
      </details>
      {rival && (
        <p class="note amber">
          <strong>Theirs</strong> was saved <Clock at={rival.value.updated_at} relative />. The change below is against theirs.
        </p>
      )}
      <h3>What changes</h3>
      <Diff before={before} after={body} same="Nothing differs." />
    </Dialog>
  );
}
