import { useState } from "preact/hooks";
import type { components } from "../../api.gen";
import { call, intent, Problem as Refusal } from "../../call";
import { Action, Command, Problem } from "../../parts/basic";
import { Dialog } from "../../parts/dialog";
import { refresh } from "../../query";

type Endpoint = components["schemas"]["Endpoint"];

/** Shows the secret of a new endpoint, once. */
export function Secret({ name, secret, onClose }: { name: string; secret: string; onClose: () => void }) {
  return (
    <Dialog title={`The secret of ${name}`} onClose={onClose}>
      <p>Your receiver checks the signature of each request with it. Copy it now: it is shown only here, and only once.</p>
      <Command text={secret} />
    </Dialog>
  );
}

/** Rotates the secret in three steps: make the new one, give it to the receiver, send a test. */
export function Rotation({ name, onClose, onTest }: { name: string; onClose: () => void; onTest: () => void }) {
  const [step, go] = useState(1);
  const [secret, show] = useState("");
  const [force, insist] = useState(false);
  const [error, fail] = useState<unknown>(null);
  const [busy, work] = useState(false);
  const lately = error instanceof Refusal && error.code === "rotated_lately";
  const rotate = async () => {
    work(true);
    fail(null);
    try {
      const got = await call("post", "/v1/endpoints/{name}/secrets", { path: { name }, query: force ? ({ force: true } as never) : undefined, intent: intent() });
      show((got.value as Endpoint).secret ?? "");
      refresh(["endpoint", name]);
      go(2);
    } catch (problem) {
      fail(problem);
    }
    work(false);
  };
  return (
    <Dialog title={`Rotate the secret of ${name}`} onClose={onClose}>
      <ol class="endpoint-steps">
        <li aria-current={step === 1 ? "step" : undefined}>
          <strong>Make a new secret.</strong> From then on each request has two signatures: with the new and with the previous secret.
          {step === 1 && (
            <div class="stack">
              <Problem error={error} />
              {(lately || force) && (
                <label class="check">
                  <input type="checkbox" checked={force} onChange={(e) => insist(e.currentTarget.checked)} />
                  Rotate again all the same. The secret before the last one ends at once.
                </label>
              )}
              <div class="buttons">
                <Action kind="main" scope="endpoints:write" why={busy ? "It is being sent." : ""} onClick={rotate}>
                  Make the new secret
                </Action>
              </div>
            </div>
          )}
        </li>
        <li aria-current={step === 2 ? "step" : undefined}>
          <strong>Give it to your receiver.</strong> It is shown only here, and only once.
          {step === 2 && (
            <div class="stack">
              <Command text={secret} />
              <div class="buttons">
                <Action kind="main" onClick={() => go(3)}>
                  The receiver has it
                </Action>
              </div>
            </div>
          )}
        </li>
        <li aria-current={step === 3 ? "step" : undefined}>
          <strong>Send a test.</strong> The receiver must accept it. The previous secret ends at the next rotation.
          {step === 3 && (
            <div class="buttons">
              <Action
                kind="main"
                scope="endpoints:write"
                onClick={() => {
                  onClose();
                  onTest();
                }}
              >
                Send a test
              </Action>
            </div>
          )}
        </li>
      </ol>
    </Dialog>
  );
}
