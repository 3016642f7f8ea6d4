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

/** A seeded carillon dev. */
export interface Server extends Ready {
  /** The tenant of the walks, and a key that may do everything in it. It is made at the start, because its ticks take a while to come. */
  acme: { key: string; world: World };
}

declare module "vitest" {
  export interface ProvidedContext {
    servers: Server[];
    browser: string;
  }
}

/**
 * Starts a Chromium, and a seeded carillon dev for each worker, so that files which run at the same time change nothing of each other's. All
 * end with the tests. If CARILLON_READY names the ready file of a carillon dev, all workers use that one.
 */
export default async function setup(project: TestProject) {
  const browser = await chromium.launchServer({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP carillon.test 127.0.0.1"],
  });
  const folder = mkdtempSync(join(tmpdir(), "console-"));
  const given = process.env.CARILLON_READY;
  const starts = given ? [] : Array.from({ length: project.config.maxWorkers }, (_, n) => join(folder, `ready-${n}.json`)).map((file) => ({ file, process: start(file) }));
  const end = async () => {
    await browser.close();
    await Promise.all(starts.map((server) => stop(server.process)));
    rmSync(folder, { recursive: true });
  };
  try {
    project.provide("servers", await Promise.all(given ? [seeded(given)] : starts.map((server) => seeded(server.file, server.process))));
    project.provide("browser", browser.wsEndpoint());
  } catch (error) {
    await end(); // vitest calls it only for a setup that succeeded
    throw error;
  }
  return end;
}

/** Waits until a carillon dev has written its ready file, and stores what the pages show. */
async function seeded(file: string, server?: ChildProcess): Promise<Server> {
  await until(() => existsSync(file) || ended(server), 180_000, "carillon dev is ready");
  if (ended(server)) throw new Error("carillon dev ended before it was ready");
  const ready = JSON.parse(readFileSync(file, "utf8")) as Ready;
  await seed(ready);
  const acme = await makeTenant(ready, "acme", { ticks_per_second: 5 });
  return { ...ready, acme: { key: acme.ready.token, world: await makeWorld(acme) } };
}

/** Starts a carillon dev that writes its address and tokens to a file. */
function start(file: string): ChildProcess {
  const program = process.env.CARILLON_PROGRAM ? [process.env.CARILLON_PROGRAM] : ["go", "run", "./cmd/carillon"];
  return spawn(program[0], [...program.slice(1), "dev", "--ephemeral", "--listen", "127.0.0.1:0", "--ready-file", file], {
    cwd: "../..",
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...process.env, DATABASE_URL: "", PGCONNECT_TIMEOUT: "10" }, // connecting may take long while pages are tested
    detached: true,
  });
}

/** Interrupts a carillon dev, unless it has ended, and waits for its end. */
async function stop(server: ChildProcess) {
  if (server.exitCode !== null) return;
  const ended = new Promise((done) => server.on("exit", done));
  process.kill(-(server.pid as number), "SIGINT");
  await ended;
}

const ended = (server?: ChildProcess) => server !== undefined && server.exitCode !== null;
