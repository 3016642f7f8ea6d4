// Measures the console in Chromium for `go run ./loadtest console`, which says where the server is, and prints a line of JSON for each
// thing: {"name": …, "values": […]}, in milliseconds or, for the heap, megabytes. Other lines are for people.
//
//   node limits.mjs pages    from a click to the first content of pages, and from a key in a filter to the rows
//   node limits.mjs tail     the heap of the tab while HERD ticks, which are due at HERD_AT, go through the tail
import { chromium } from "playwright-core";

const { CARILLON_URL: url, CARILLON_TOKEN: token, STORED, HERD, HERD_AT } = process.env;
const rounds = 20;
const home = "/console/demo";
const print = (name, values) => console.log(JSON.stringify({ name, values: values.map((v) => Math.round(v * 100) / 100) }));
const key = (i) => `user_${String(i).padStart(8, "0")}`;

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--enable-precise-memory-info"] });
try {
  const context = await browser.newContext({ baseURL: url, viewport: { width: 1280, height: 860 }, timezoneId: "Europe/Berlin" });
  const answer = await context.request.post("/console/session", { data: { token } });
  if (!answer.ok()) throw new Error(`sign in: ${answer.status()} ${await answer.text()}`);
  const page = await context.newPage();
  page.on("pageerror", (e) => console.error(`a script of the page failed: ${e.message}`));
  if (process.argv[2] === "pages") await pages(page);
  else if (process.argv[2] === "tail") await tail(page);
  else throw new Error("what to measure is pages or tail");
} finally {
  await browser.close();
}

async function pages(page) {
  const rail = (name) => page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name, exact: true });
  const step = Math.max(1, Math.floor(Number(STORED) / rounds));
  const took = { overview: [], list: [], subject: [], schedule: [] };
  for (let i = -1; i < rounds; i++) {
    const name = key((i + 1) * step === Number(STORED) ? 0 : (i + 1) * step);
    const round = {};
    await from(page, "/settings");
    round.overview = await click(page, rail("Overview"), ".figures .value");
    await from(page, "/settings");
    round.list = await click(page, rail("Schedules"), '[role="table"][aria-label="Schedules"] [role="rowgroup"] [role="row"]');
    await from(page, "/subjects");
    await page.getByLabel("Open a subject").fill(name);
    round.subject = await click(page, page.getByRole("button", { name: "Open", exact: true }), "#main .lane-head, #main .entries");
    await from(page, `/schedules?key=${name}`);
    round.schedule = await click(page, page.locator('[role="row"] a').first(), ".tabs");
    console.log(`round ${i + 1} of ${rounds}: ${JSON.stringify(round)}`);
    if (i >= 0) for (const what of Object.keys(took)) took[what].push(round[what]); // the first round fills caches
  }
  for (const [what, values] of Object.entries(took)) print(what, values);
  print("filter", await keystrokes(page));
}

/** Loads a page as a new one, so that the console has no answer in its memory. */
async function from(page, path) {
  await page.goto(home + path);
  await page.locator("#main h1").waitFor();
  await page.waitForTimeout(300); // as long as a person needs at least before the next click
}

/** Milliseconds from a click until an element shows, as the page itself sees it: at the frame that draws it. */
async function click(page, target, selector) {
  await target.waitFor();
  await page.evaluate((selector) => {
    window.took = new Promise((done, fail) => {
      setTimeout(() => fail(new Error(`not within 60 s: ${selector}`)), 60_000);
      const begin = () => {
        const began = performance.now();
        const look = () => (document.querySelector(selector) ? requestAnimationFrame(() => done(performance.now() - began)) : requestAnimationFrame(look));
        look();
      };
      addEventListener("click", begin, { capture: true, once: true });
    });
  }, selector);
  await target.click();
  return page.evaluate(() => window.took);
}

/** Milliseconds from each key in the filter "key contains" until the rows are those of the new text. */
async function keystrokes(page) {
  const took = [];
  await from(page, "/schedules");
  const field = page.getByLabel("key contains", { exact: true });
  for (const text of ["000", "001", "012", "010", "020", "100", "011", "021", "002", "110"]) {
    await field.fill("");
    await page.waitForFunction(() => !location.search.includes("key_contains"));
    await page.waitForTimeout(500);
    for (let n = 1; n <= text.length; n++) {
      const typed = text.slice(0, n);
      await page.evaluate((typed) => {
        window.took = new Promise((done, fail) => {
          setTimeout(() => fail(new Error(`no rows for ${typed} within 60 s`)), 60_000);
          const begin = () => {
            const began = performance.now();
            const ready = () => {
              const foot = document.querySelector(".rows-foot [role=status]")?.textContent ?? "";
              const rows = [...document.querySelectorAll('[role="rowgroup"] [role="row"] a bdi')];
              return new URLSearchParams(location.search).get("key_contains") === typed && rows.length > 0 && !foot.includes("reading") && rows.every((r) => r.textContent.includes(typed));
            };
            const look = () => (ready() ? done(performance.now() - began) : requestAnimationFrame(look));
            requestAnimationFrame(look);
          };
          addEventListener("keydown", begin, { capture: true, once: true });
        });
      }, typed);
      await field.press(typed.at(-1));
      took.push(await page.evaluate(() => window.took));
    }
  }
  return took;
}

async function tail(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  const heap = async () => {
    const { metrics } = await session.send("Performance.getMetrics");
    return metrics.find((m) => m.name === "JSHeapUsedSize").value / 1e6;
  };
  await page.goto(`${home}/ticks?view=live`);
  await page.getByText("in the last second").or(page.getByText("Live tail")).first().waitFor();
  const due = Date.parse(HERD_AT);
  const last = due + 10 * 60_000;
  const values = [];
  let quiet = 0;
  let seen = 0;
  while (Date.now() < last && !(Date.now() > due + 10_000 && seen > 0 && quiet >= 10)) {
    values.push(await heap());
    const title = await page.locator("#main h2").first().textContent();
    const [, fired, ended] = (/([\d,]+) fired, ([\d,]+) ended/.exec(title ?? "") ?? []).map((n) => Number(n.replaceAll(",", "")));
    if (fired || ended) seen = Math.max(seen, await page.locator(".tail-rows .line").count());
    quiet = fired || ended ? 0 : quiet + 1;
    await page.waitForTimeout(500);
  }
  const unshown = await page.locator("#main").getByText("not shown").allTextContents();
  console.log(`the tail was followed for ${Math.round((Date.now() - due) / 1000)} s after ${HERD} ticks were due; ${unshown[0] ?? "all shown"}`);
  print("tail_seen", [seen]);
  print("tail_heap_mb", values);
}
