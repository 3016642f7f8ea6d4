import { mkdirSync } from "node:fs";
import type { Locator, Page } from "playwright-core";
import { expect } from "vitest";

/** The most clicks from the overview to an answer. */
const most = 5;

/** A user with a question. Each click counts, also a click into a field and one that chooses from a list. Keys do not count. */
export class Walk {
  clicks = 0;

  constructor(readonly page: Page) {}

  async click(target: Locator) {
    this.clicks++;
    await target.click();
  }

  /** Types into a field, with a click into it unless it has the focus. */
  async type(field: Locator, text: string) {
    await field.waitFor();
    if (!(await field.evaluate((e) => e === document.activeElement))) await this.click(field);
    await this.page.keyboard.type(text);
  }

  /** Moves a slider: one press of the mouse. */
  async slide(slider: Locator, value: string) {
    this.clicks++;
    await slider.fill(value);
  }

  /** Goes to a field by the key Tab, at most 12 times. */
  async tab(field: Locator) {
    for (let left = 12; !(await field.evaluate((e) => e === document.activeElement)); left--) {
      if (left === 0) throw new Error(`Tab does not reach ${field}`);
      await this.page.keyboard.press("Tab");
    }
  }

  /** Checks that few enough clicks led to the answer. If SCREENS names a folder, a picture is written there. */
  async answered(name: string, shown?: Locator) {
    expect(this.clicks, "clicks from the overview").toBeLessThanOrEqual(most);
    if (process.env.SCREENS) {
      mkdirSync(process.env.SCREENS, { recursive: true });
      await shown?.evaluate((e) => e.scrollIntoView({ block: "center" }));
      await this.page.screenshot({ path: `${process.env.SCREENS}/answer-${name}.png`, animations: "disabled" });
    }
  }
}
