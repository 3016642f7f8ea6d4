import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Runs the walks last: the ticks that they wait for come meanwhile. */
class WalksLast extends BaseSequencer {
  async sort(files: TestSpecification[]) {
    const walks = (f: TestSpecification) => Number(f.moduleId.includes("/walks/"));
    return (await super.sort(files)).sort((a, b) => walks(a) - walks(b));
  }
}

// Drives the real console in Chromium. Two files run at a time, each against a carillon dev of its own. CARILLON_READY names the ready file
// of one that runs already.
export default defineConfig({
  test: {
    include: ["test/{pages,walks}/**/*.browser.ts"],
    globalSetup: ["test/server.ts"],
    maxWorkers: process.env.CARILLON_READY ? 1 : 2,
    sequence: { sequencer: WalksLast },
    testTimeout: 60_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 20_000 } },
  },
});
