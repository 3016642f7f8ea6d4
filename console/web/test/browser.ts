import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import type { Server } from "./server";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export type Theme = "light" | "dark";

/** The widths and themes in which each page is looked at. */
const widths = [1280, 360];
const themes: Theme[] = ["light", "dark"];

let browser: Browser;
const contexts = new Map<string, BrowserContext>();

/** The server of this worker, whose number vitest gives to its process. */
export function server(): Server {
  const servers = inject("servers");
  return servers[Number(process.env.VITEST_POOL_ID ?? 1) % servers.length];
}

/** Opens Chromium for the tests of a file. */
export function useBrowser() {
  beforeAll(async () => {
    browser = await chromium.connect(inject("browser"));
  });
  afterAll(async () => {
    await browser.close();
    contexts.clear();
  });
}

interface How {
  theme?: Theme;
  width?: number;
  /** A credential other than the token with every scope; "": nobody is signed in. */
  as?: string;
  /** The zone of the browser; Auckland, if none is given. */
  zone?: string;
  /** Runs in the page before its own scripts. */
  first?: () => void;
}

/** Opens a page of the console, signed in. Each theme, width, zone and credential has its own browser context. path follows /console. */
export async function open(path: string, how: How = {}): Promise<Page> {
  const { theme = "light", width = 1280, as = server().token, zone = "Pacific/Auckland" } = how;
  const { url } = server();
  const name = `${theme} ${width} ${zone} ${as}`;
  let context = contexts.get(name);
  if (!context) {
    context = await browser.newContext({ baseURL: url, viewport: { width, height: width < 640 ? 780 : 860 }, colorScheme: theme, timezoneId: zone, locale: "en-GB" });
    if (as) {
      const body = as.startsWith("carillon_key_") ? { api_key: as } : { token: as };
      const answer = await context.request.post("/console/session", { data: body });
      if (!answer.ok()) throw new Error(`sign in: ${answer.status()} ${await answer.text()}`);
    }
    contexts.set(name, context);
  }
  const page = await context.newPage();
  page.on("pageerror", (e) => errors.push(`${path}: ${e.message}`));
  page.on("console", (m) => {
    if (m.type() === "error" && !/status of (401|403|404|409|412|422|429)/.test(m.text())) errors.push(`${path}: ${m.text()}`);
  });
  page.on("request", (r) => {
    if (!r.url().startsWith(url) && !r.url().startsWith("data:") && !r.url().startsWith("blob:")) errors.push(`${path} asks ${r.url()}`);
  });
  if (how.first) await page.addInitScript(how.first);
  await page.goto(`/console${path}`);
  return page;
}

/** What went wrong in the pages: errors of scripts and of the policy, and requests to another origin. Each test begins without any. */
export const errors: string[] = [];

/**
 * Tests a page in both themes and widths: axe finds nothing serious, nothing overflows, and no script fails. ready is a text that the page
 * shows when it has its data.
 */
export function looksWell(name: string, path: string, ready: string | RegExp, before?: (page: Page) => Promise<void>, as?: string) {
  for (const width of widths) {
    test(`${name} is sound at ${width} px`, async () => {
      errors.length = 0;
      const page = await open(path, { width, as });
      try {
        await page.getByText(ready).filter({ visible: true }).first().waitFor({ timeout: 15_000 });
        await before?.(page);
        for (const theme of themes) {
          await page.emulateMedia({ colorScheme: theme });
          if (process.env.SCREENS) {
            mkdirSync(process.env.SCREENS, { recursive: true });
            await page.screenshot({ path: `${process.env.SCREENS}/${name.replaceAll(" ", "-")}-${theme}-${width}.png` });
          }
          expect((await violations(page, theme === themes[0] ? undefined : ofColors)).map((v) => `${theme}: ${v}`)).toEqual([]);
        }
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        expect(wide, "the page is wider than the window").toBeLessThanOrEqual(0);
        const beyond = await page.evaluate(() =>
          [...document.querySelectorAll(".panel table")]
            .filter((t) => !t.closest(".scroll") && t.getBoundingClientRect().right > (t.closest(".panel")?.getBoundingClientRect().right ?? 0) + 1)
            .map((t) => t.closest(".panel")?.querySelector("h2, h3")?.textContent),
        );
        expect(beyond, "tables are wider than their panels").toEqual([]);
        expect(errors).toEqual([]);
      } finally {
        await page.close();
      }
    });
  }
}

/** The rules of axe that another theme can break: themes differ only in colours. */
const ofColors = ["color-contrast", "link-in-text-block"];

/**
 * Returns the serious and critical findings of axe, by some rules or by all. axe is evaluated, because the page's policy would refuse a
 * script element.
 */
async function violations(page: Page, rules?: string[]): Promise<string[]> {
  await page.evaluate(`window.axe || (() => {${axe}})()`);
  return page.evaluate(async (rules) => {
    // biome-ignore lint/suspicious/noExplicitAny: axe has put itself there
    const found = await (window as any).axe.run(document, { resultTypes: ["violations"], ...(rules ? { runOnly: rules } : {}) });
    return found.violations
      .filter((v: { impact: string }) => v.impact === "serious" || v.impact === "critical")
      .map(
        (v: { id: string; help: string; nodes: { html: string; failureSummary: string }[] }) =>
          `${v.id}: ${v.help}: ${v.nodes
            .map((n) => `${n.html} ${n.failureSummary}`)
            .slice(0, 3)
            .join(" | ")}`,
      );
  }, rules);
}
