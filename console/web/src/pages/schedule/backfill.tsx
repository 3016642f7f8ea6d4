import { useState } from "preact/hooks";
import { call } from "../../call";
import { now } from "../../live";
import { Field, Problem } from "../../parts/basic";
import { Clock } from "../../parts/clock";
import { Dialog } from "../../parts/dialog";
import { useQuery } from "../../query";
import { instantOf, wall } from "../../time";
import { toast } from "../../toast";
import { link } from "../../url";
import type { FormProps } from "./actions";

interface Plan {
  count: number;
  existing: number;
  first: string | null;
  last: string | null;
}

/** Makes ticks for times that have passed. First it shows how many that would be. */
export function Backfill({ of: { s, name }, onClose }: FormProps) {
  const zone = s.timezone_in_force;
  const [from, setFrom] = useState(wall(now() - 86_400_000, zone));
  const [to, setTo] = useState(wall(now(), zone));
  const span = { from: instantOf(from, zone), to: instantOf(to, zone) };
  const send = (dry: boolean, more: object) => call("post", "/v1/workflows/{workflow}/schedules/{key}/backfill", { path: name, body: { ...span, ...(dry ? { dry_run: true } : {}) }, ...more });
  const plan = useQuery({ key: ["backfill", name, span], fn: async (signal) => (await send(true, { signal })).value as Plan, on: Boolean(span.from && span.to), keep: true });
  const n = plan.data ? plan.data.count - plan.data.existing : 0;
  return (
    <Dialog
      title="Backfill"
      verb={`Make ${n.toLocaleString("en")} ticks`}
      why={plan.isFetching ? "The number is being read." : n > 0 ? "" : "No tick would be made."}
      onClose={onClose}
      onSend={async (intent) => {
        const got = await send(false, { intent });
        toast("The backfill has begun.", { href: link("operations", (got.value as { id: string }).id), text: "Follow it" });
      }}
    >
      <p>A tick for each time that the schedule names from the first on, before the last. Times that have a tick already are left alone.</p>
      <div class="two">
        <Field label="From">{(p) => <input {...p} type="datetime-local" value={from} onInput={(e) => setFrom(e.currentTarget.value)} />}</Field>
        <Field label="Before">{(p) => <input {...p} type="datetime-local" value={to} onInput={(e) => setTo(e.currentTarget.value)} />}</Field>
      </div>
      <p class="dim">By the clock of {zone}.</p>
      <Problem error={plan.error} />
      {plan.data && (
        <p>
          <strong class="num">{n.toLocaleString("en")}</strong> ticks
          {plan.data.existing > 0 && `, ${plan.data.existing.toLocaleString("en")} exist already`}
          {plan.data.first && (
            <>
              {": "}
              <Clock at={plan.data.first} zone={zone} /> to <Clock at={plan.data.last} zone={zone} />
            </>
          )}
        </p>
      )}
    </Dialog>
  );
}
