import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import type { TestProject } from "vitest/node";
import { seed } from "./fixture";
import { makeTenant } from "./tenant";
import { until } from "./until";
import { makeWorld, type World } from "./walks/world";

export interface Ready {
  url: string;
  token: string;
  platform_token: string;
}

declare module "vitest" {
  export interface ProvidedContext {
    ready: Ready;
    browser: string;
    /** The tenant of the walks, and a key that may do everything in it. It is made at the start, because its ticks take a while to come. */
    acme: { key: string; world: World };
  }
}

/** Starts a Chromium, and a carillon dev unless CARILLON_READY names the ready file of one; seeds it; and ends both. */
export default async function setup(project: TestProject) {
  const browser = await chromium.launchServer({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP carillon.test 127.0.0.1"],
  });
  const folder = mkdtempSync(join(tmpdir(), "console-"));
  const file = process.env.CARILLON_READY ?? join(folder, "ready.json");
  const server = process.env.CARILLON_READY ? undefined : start(file);
  const end = async () => {
    await browser.close();
    if (server && server.exitCode === null) {
      const ended = new Promise((done) => server.on("exit", done));
      process.kill(-(server.pid as number), "SIGINT");
      await ended;
    }
    rmSync(folder, { recursive: true });
  };
  try {
    await until(() => existsSync(file) || ended(server), 180_000, "carillon dev is ready");
    if (ended(server)) throw new Error("carillon dev ended before it was ready");
    const ready = JSON.parse(readFileSync(file, "utf8")) as Ready;
    await seed(ready);
    const acme = await makeTenant(ready, "acme", { ticks_per_second: 5 });
    project.provide("acme", { key: acme.ready.token, world: await makeWorld(acme) });
    project.provide("ready", ready);
    project.provide("browser", browser.wsEndpoint());
  } catch (error) {
    await end(); // vitest calls it only for a setup that succeeded
    throw error;
  }
  return end;
}

/** Starts a carillon dev that writes its address and tokens to a file. */
function start(file: string): ChildProcess {
  const program = process.env.CARILLON_PROGRAM ? [process.env.CARILLON_PROGRAM] : ["go", "run", "./cmd/carillon"];
  return spawn(program[0], [...program.slice(1), "dev", "--ephemeral", "--listen", "127.0.0.1:0", "--ready-file", file], {
    cwd: "../..",
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...process.env, DATABASE_URL: "" },
    detached: true,
  });
}

const ended = (server?: ChildProcess) => server !== undefined && server.exitCode !== null;
