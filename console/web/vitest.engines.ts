import { defineConfig } from "vitest/config";

// Looks at the console in Firefox and in WebKit, against a carillon dev of its own: CONTRIBUTING.md says how to start their WebDriver servers.
export default defineConfig({
  test: {
    include: ["test/engines/**/*.engine.ts"],
    globalSetup: ["test/server.ts"],
    fileParallelism: false, // so there is one worker
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
