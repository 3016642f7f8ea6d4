import { useState } from "preact/hooks";
import { call } from "../../call";
import { Action, Field } from "../../parts/basic";
import { Confirm } from "../../parts/dialog";
import { refresh } from "../../query";
import { self } from "../../session";
import { toast } from "../../toast";

/** Stops all firing of the tenant. The band above each page continues it. */
export function HaltAction({ halted }: { halted: boolean }) {
  const [asking, ask] = useState(false);
  const [note, write] = useState("");
  if (halted) return null;
  return (
    <>
      <Action kind="danger" scope="tenant:admin" onClick={() => ask(true)}>
        Halt everything
      </Action>
      {asking && (
        <Confirm
          title="Halt everything"
          type={self.value?.tenant ?? ""}
          onClose={() => ask(false)}
          onSend={() =>
            call("post", "/v1/admin/halt", { body: (note ? { note } : {}) as never }).then(() => {
              toast("Nothing fires any more.");
              refresh(["overview"]);
            })
          }
        >
          <p>No schedule of this tenant fires until somebody continues. Ticks that run now go on to their end.</p>
          <Field label="Why" hint="Everyone sees it on every page.">
            {(p) => <input {...p} value={note} onInput={(e) => write(e.currentTarget.value)} />}
          </Field>
        </Confirm>
      )}
    </>
  );
}
