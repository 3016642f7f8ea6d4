import { useEffect, useRef, useState } from "preact/hooks";
import { now } from "../../live";
import { Action, Problem } from "../../parts/basic";
import { Dialog } from "../../parts/dialog";
import { dateOf } from "../../time";
import { exportAll, saveAs } from "./transfer";

const size = (bytes: number) => (bytes < 1 << 20 ? `${(bytes / 1024).toFixed(0)} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`);

/** Saves the schedules as a file of lines, which the import takes. */
export function Export({ workflow, onClose }: { workflow: string; onClose: () => void }) {
  const [state, set] = useState<"" | "reading" | "saved">("");
  const [got, count] = useState({ lines: 0, bytes: 0 });
  const [error, fail] = useState<unknown>(null);
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const begin = async () => {
    set("reading");
    fail(null);
    try {
      let shown = 0;
      const { blob, lines } = await exportAll(
        workflow,
        (n, bytes) => {
          if (Date.now() - shown < 200) return;
          shown = Date.now();
          count({ lines: n, bytes });
        },
        stop.current.signal,
      );
      count({ lines, bytes: blob.size });
      saveAs(blob, `schedules${workflow ? `-${workflow}` : ""}-${dateOf(now())}.ndjson`);
      set("saved");
    } catch (problem) {
      if (stop.current.signal.aborted) return;
      fail(problem);
      set("");
    }
  };
  return (
    <Dialog title="Export schedules" onClose={onClose}>
      <p>{workflow ? `All schedules of ${workflow}` : "All schedules of the tenant"}, one a line, with their payloads. The import takes the file, here or in another tenant.</p>
      <p class="dim">Other filters of the list do not count: the file has everything of {workflow ? "the workflow" : "the tenant"}.</p>
      {state && (
        <p role="status" class="num">
          {got.lines.toLocaleString("en")} schedules, {size(got.bytes)} {state === "saved" ? "are saved." : "are here…"}
        </p>
      )}
      <Problem error={error} />
      <div class="buttons">
        <Action kind="main" scope="schedules:read" why={state === "reading" ? "It is being read." : ""} onClick={begin}>
          {state === "saved" ? "Save again" : "Save the file"}
        </Action>
      </div>
    </Dialog>
  );
}
