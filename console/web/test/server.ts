import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import type { TestProject } from "vitest/node";
import { seed } from "./fixture";

export interface Ready {
  url: string;
  token: string;
  platform_token: string;
}

declare module "vitest" {
  export interface ProvidedContext {
    ready: Ready;
    browser: string;
  }
}

/** Starts a carillon dev, unless CARILLON_READY names the ready file of one, and a Chromium; seeds it; and ends both. */
export default async function setup(project: TestProject) {
  const folder = mkdtempSync(join(tmpdir(), "console-"));
  const file = process.env.CARILLON_READY ?? join(folder, "ready.json");
  let server: ChildProcess | undefined;
  if (!process.env.CARILLON_READY) {
    const program = process.env.CARILLON_PROGRAM ? [process.env.CARILLON_PROGRAM] : ["go", "run", "./cmd/carillon"];
    server = spawn(program[0], [...program.slice(1), "dev", "--ephemeral", "--listen", "127.0.0.1:0", "--ready-file", file], {
      cwd: "../..",
      stdio: ["ignore", "ignore", "inherit"],
      env: { ...process.env, DATABASE_URL: "" },
      detached: true,
    });
  }
  await until(() => existsSync(file), 180_000, "carillon dev is ready");
  const ready = JSON.parse(readFileSync(file, "utf8")) as Ready;
  await seed(ready);
  const browser = await chromium.launchServer({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP carillon.test 127.0.0.1"],
  });
  project.provide("ready", ready);
  project.provide("browser", browser.wsEndpoint());
  return async () => {
    await browser.close();
    if (server) {
      const ended = new Promise((done) => server.on("exit", done));
      process.kill(-(server.pid as number), "SIGINT");
      await ended;
    }
    rmSync(folder, { recursive: true });
  };
}

/** Waits for a condition. */
export async function until(holds: () => boolean | Promise<boolean>, ms: number, what: string): Promise<void> {
  const end = Date.now() + ms;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}
