import { defineConfig } from "vitest/config";
import { sources } from "./sources.ts";

const out = process.env.CONSOLE_OUT ?? "../dist";

// The names of the files have hashes of their content, so that browsers keep them for ever, and two builds of the same sources are equal.
export default defineConfig({
  base: "/console/",
  publicDir: false,
  plugins: [sources(out)],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: out,
    emptyOutDir: true,
    target: "es2023",
    sourcemap: false,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: true,
    // One chunk for the parts of pages: many small chunks compress badly. Groups of pages would be smaller yet, but the bundler then leaves
    // out an export of a page that a chunk of another one needs.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: "parts", test: /\/src\/parts\/(?!table)/ }] } } },
  },
  test: { include: ["test/unit/**/*.test.ts"] },
  server: { proxy: { "/v1": process.env.CARILLON_URL ?? "http://127.0.0.1:8080", "/console/session": process.env.CARILLON_URL ?? "http://127.0.0.1:8080" } },
});
