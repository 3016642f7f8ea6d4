import { defineConfig } from "vitest/config";

// Drives the real console in Chromium, against a carillon dev of its own. CARILLON_READY names the ready file of one that runs already.
export default defineConfig({
  test: {
    include: ["test/{pages,walks}/**/*.browser.ts"],
    globalSetup: ["test/server.ts"],
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
