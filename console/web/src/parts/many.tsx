import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type Answer, call } from "../call";
import { refresh, useQuery } from "../query";
import { toast } from "../toast";
import { link } from "../url";
import { Field, Name, Problem } from "./basic";
import { Dialog } from "./dialog";

type Preview = Answer<"/v1/schedules/actions", "post"> & {
  matched: number;
  changed: number;
  sample: { workflow: string; key: string }[];
};

interface Props {
  title: string;
  /** What is done, in one or two words: "Pause". */
  verb: string;
  danger?: boolean;
  /** The action and what it picks. */
  plan: object;
  /** What the action says besides: it does not change how many schedules it picks. */
  more?: object;
  onClose: () => void;
  onSent?: () => void;
  children: ComponentChildren;
}

/** Shows what an action on many schedules would do, and does it once the number was typed. */
export function Many({ title, verb, danger, plan, more, onClose, onSent, children }: Props) {
  const [typed, type] = useState("");
  const preview = useQuery({
    key: ["many", plan],
    fn: async (signal) => (await call("post", "/v1/schedules/actions", { body: { ...plan, dry_run: true } as never, signal })).value as Preview,
    keep: true,
  });
  const n = preview.data?.changed ?? 0;
  const confirmed = n <= 1 || typed.replaceAll(",", "") === String(n);
  const why = !preview.data ? "The number is being read." : n === 0 ? "It would change nothing." : confirmed ? "" : `Type ${n} first.`;
  return (
    <Dialog
      title={title}
      verb={`${verb} ${n.toLocaleString("en")}`}
      danger={danger}
      why={why}
      onClose={onClose}
      onSend={async (intent) => {
        const got = await call("post", "/v1/schedules/actions", { body: { ...plan, ...more } as never, intent });
        const op = (got.value as unknown as { operation?: { id: string } }).operation;
        toast(`${verb}: begun for ${n.toLocaleString("en")} schedules.`, op && { href: link("operations", op.id), text: "Follow it" });
        onSent?.();
        refresh(["schedules"]);
      }}
    >
      {children}
      <Problem error={preview.error} retry={() => preview.refetch()} />
      {preview.data && (
        <>
          <p>
            <strong class="num">{n.toLocaleString("en")}</strong> of {preview.data.matched.toLocaleString("en")} schedules would change.
          </p>
          <ul class="dim">
            {preview.data.sample.slice(0, 5).map((s) => (
              <li key={s.workflow + s.key}>
                {s.workflow} / <Name>{s.key}</Name>
              </li>
            ))}
            {n > 5 && <li>… and {(n - Math.min(5, preview.data.sample.length)).toLocaleString("en")} more</li>}
          </ul>
        </>
      )}
      {n > 1 && <Field label={`Type ${n} to confirm`}>{(p) => <input {...p} inputMode="numeric" autocomplete="off" value={typed} onInput={(e) => type(e.currentTarget.value)} />}</Field>}
    </Dialog>
  );
}
