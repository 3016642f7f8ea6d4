export interface Batch {
  /** The number in the file of its first line, from 1 on. */
  first: number;
  lines: string[];
  /** How many bytes of the file are read. */
  read: number;
}

const mostLines = 1000; // the server also stores so many at once, and a browser reads the answer only after it has sent all
const mostChars = 2 << 20;

/** Reads a file in batches of lines. Its length does not matter: only one batch is held. */
export async function* batches(file: Blob): AsyncGenerator<Batch> {
  const reader = file.stream().getReader();
  const decoder = new TextDecoder();
  let [rest, read, first, chars] = ["", 0, 1, 0];
  let lines: string[] = [];
  const cut = (): Batch => {
    const batch = { first, lines, read };
    first += lines.length;
    lines = [];
    chars = 0;
    return batch;
  };
  for (let part = await reader.read(); ; part = await reader.read()) {
    read += part.value?.length ?? 0;
    const found = (rest + decoder.decode(part.value, { stream: !part.done })).split("\n");
    rest = part.done ? "" : (found.pop() ?? "");
    for (const line of found) {
      lines.push(line);
      chars += line.length;
      if (lines.length >= mostLines || chars >= mostChars) yield cut();
    }
    if (part.done) break;
  }
  if (lines.some((l) => l.trim())) yield cut();
}
