import { useEffect, useRef, useState } from "preact/hooks";
import { Action, Field, many, Name, Problem } from "../../parts/basic";
import { SaveCsv } from "../../parts/csv";
import { Dialog } from "../../parts/dialog";
import { refresh } from "../../query";
import { type Bad, importAll, nothing, type Sum } from "./transfer";
import "./style.css";

type Stage = "" | "checking" | "checked" | "importing" | "done";

/** Stores the schedules of a file of lines, after a dry run that tells what it would do and which lines are bad. */
export function Import({ onClose }: { onClose: () => void }) {
  const [file, choose] = useState<File | null>(null);
  const [stage, go] = useState<Stage>("");
  const [sum, count] = useState<Sum>(nothing);
  const [error, fail] = useState<unknown>(null);
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const busy = stage === "checking" || stage === "importing";
  const run = async (dryRun: boolean) => {
    if (!file) return;
    go(dryRun ? "checking" : "importing");
    count(nothing);
    fail(null);
    stop.current = new AbortController();
    try {
      count(await importAll(file, dryRun, count, stop.current.signal));
      go(dryRun ? "checked" : "done");
    } catch (problem) {
      if (!stop.current.signal.aborted) fail(problem);
      go("");
    }
    if (!dryRun) refresh();
  };
  const stored = sum.inserted + sum.updated;
  const ready = stage === "checked" && stored > 0;
  return (
    <Dialog title="Import schedules" wide onClose={onClose}>
      <p>
        A file with one schedule a line, as the export writes it: <code>{'{"workflow": "hello", "key": "me", "spec": {"cron": "0 8 * * *"}}'}</code>. A schedule that exists is replaced. None is
        deleted.
      </p>
      <Field label="File">
        {(p) => (
          <input
            {...p}
            type="file"
            accept=".ndjson,.jsonl,.json,application/x-ndjson"
            disabled={busy}
            onChange={(e) => {
              choose(e.currentTarget.files?.[0] ?? null);
              go("");
              count(nothing);
              fail(null);
            }}
          />
        )}
      </Field>
      {file && (busy || sum.read > 0) && (
        <div class="stack" role="status">
          {busy && <progress max={file.size || 1} value={sum.read} aria-label="Part of the file that is read" />}
          <p class="num">
            {stage === "checked" || stage === "checking" ? "It would make" : "Made"} {many(sum.inserted)}, {stage === "checked" || stage === "checking" ? "change" : "changed"} {many(sum.updated)};{" "}
            {many(sum.unchanged)} unchanged, {many(sum.duplicates)} named again later, {many(sum.errors)} bad.
          </p>
        </div>
      )}
      {stage === "done" && <p class="note">The file is imported. {sum.errors > 0 ? "Its bad lines are not stored." : ""}</p>}
      <Problem error={error} />
      <BadLines of={sum.bad} all={sum.errors} />
      <div class="buttons">
        {busy ? (
          <Action onClick={() => stop.current.abort()}>Stop</Action>
        ) : (
          <Action kind={ready ? undefined : "main"} scope="schedules:write" why={file ? "" : "Choose a file first."} onClick={() => run(true)}>
            Check the file
          </Action>
        )}
        {ready && (
          <Action kind="main" scope="schedules:write" onClick={() => run(false)}>
            Import {many(stored)} {stored === 1 ? "schedule" : "schedules"}
          </Action>
        )}
      </div>
      {stage === "importing" && <p class="dim">What is stored stays when you stop. The same file again finishes the rest.</p>}
    </Dialog>
  );
}

function BadLines({ of, all }: { of: Bad[]; all: number }) {
  if (of.length === 0) return null;
  return (
    <>
      <div class="scroll bad-lines" role="region" aria-label="Bad lines" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th>line</th>
              <th>workflow / key</th>
              <th>why</th>
            </tr>
          </thead>
          <tbody>
            {of.slice(0, 50).map((b) => (
              <tr key={b.line}>
                <td class="num">{many(b.line)}</td>
                <td>
                  <Name>
                    {b.workflow} / {b.key}
                  </Name>
                </td>
                <td>
                  <Name>{b.error.detail}</Name> <code class="dim">{b.error.code}</code>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div class="buttons">
        {all > 50 && <span class="dim">The first 50 of {many(all)} are shown.</span>}
        <SaveCsv rows={[["line", "workflow", "key", "code", "detail"], ...of.map((b) => [b.line, b.workflow, b.key, b.error.code, b.error.detail])]} file="bad-lines.csv" />
        {all > of.length && <span class="dim">The file has the first {many(of.length)}.</span>}
      </div>
    </>
  );
}
