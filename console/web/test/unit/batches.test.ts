import { expect, test } from "vitest";
import { batches } from "../../src/pages/schedules/batches";

const read = async (text: string) => {
  const all = [];
  for await (const b of batches(new Blob([text]))) all.push(b);
  return all;
};

test("a file is read in batches whose lines keep their numbers", async () => {
  const lines = Array.from({ length: 2500 }, (_, i) => `{"key":"ключ ${i}"}`);
  for (const end of ["", "\n", "\n\n"]) {
    const all = await read(lines.join("\n") + end);
    expect(all.map((b) => b.first)).toEqual([1, 1001, 2001]);
    expect(all.flatMap((b) => b.lines).filter(Boolean)).toEqual(lines);
    expect(all.at(-1)?.read).toBe(new Blob([lines.join("\n") + end]).size);
  }
});

test("blank lines count, and a file without any line has no batch", async () => {
  expect((await read('\n\n{"key":"a"}'))[0].lines.indexOf('{"key":"a"}')).toBe(2);
  expect(await read("")).toEqual([]);
  expect(await read("\n\n")).toEqual([]);
});
