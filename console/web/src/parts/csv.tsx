/** Writes a cell. A spreadsheet would compute a text that begins like a formula, so that it gets an apostrophe. */
function cell(value: unknown): string {
  const text = String(value ?? "");
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Writes rows as CSV (RFC 4180). */
export const csv = (rows: unknown[][]) => rows.map((row) => row.map(cell).join(",")).join("\r\n");

/** A link that saves rows as a file. */
export function SaveCsv({ rows, file }: { rows: unknown[][]; file: string }) {
  return (
    <a class="button" href={`data:text/csv;charset=utf-8,${encodeURIComponent(csv(rows))}`} download={file}>
      Save as CSV
    </a>
  );
}
