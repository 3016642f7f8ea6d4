import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** What dist is made of. The types of the API leave nothing in it. */
const roots = ["index.html", "package-lock.json", "sources.ts", "src", "vite.config.ts"];
const without = "src/api.gen.d.ts";

function files(path: string): string[] {
  if (!statSync(path).isDirectory()) return path === without ? [] : [path];
  return readdirSync(path).flatMap((name) => files(`${path}/${name}`));
}

const sum = (content: string | Buffer) => createHash("sha256").update(content).digest("hex");

/** Writes the file SOURCES beside the built files: a Go test compares it with the sources, so that a stale build is noticed without Node. */
export function sources(out: string) {
  return {
    name: "sources",
    closeBundle() {
      const lines = roots
        .flatMap(files)
        .sort()
        .map((name) => `${name} ${sum(readFileSync(name))}\n`);
      writeFileSync(join(out, "..", "SOURCES"), `${sum(lines.join(""))}\n`);
    },
  };
}
