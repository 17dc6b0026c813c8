// Chromium, what is asked of a page in it, and how that is told.
import { readFileSync } from 'node:fs';
import { chromium } from 'playwright-core';

let failures = 0;

/** Tells whether something holds, with what was found. */
export function expect(what, holds, found) {
  failures += !holds;
  console.log(`${holds ? 'ok    ' : 'FAILED'} ${what}: ${typeof found === 'number' ? found.toFixed(2) : JSON.stringify(found)}`);
}

/** Ends the program with 1 where something did not hold. */
export function conclude() {
  console.log(failures === 0 ? 'all hold' : `${failures} failed`);
  process.exitCode = Number(failures > 0);
}

export const launched = () => chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  // Its sandbox does not work for root.
  args: process.getuid() === 0 ? ['--no-sandbox'] : [],
});

/** Runs in a page before all else: `violations` has what its policy forbids. */
export function recordViolations() {
  window.violations = [];
  document.addEventListener('securitypolicyviolation', event => window.violations.push(event.violatedDirective));
}

/** Polls: a string that is evaluated in the page would break its policy. */
export async function until(page, holds) {
  for (let i = 0; i < 600; i++) {
    if (await page.evaluate(holds)) return;
    await page.waitForTimeout(100);
  }
  throw new Error(`never: ${holds}`);
}

/** What the page saves as its picture. */
async function saved(page) {
  const [download] = await Promise.all([page.waitForEvent('download'), page.keyboard.press('g')]);
  return readFileSync(await download.path());
}

/** The same once it no longer changes: Gaussians are sorted while one looks. */
export async function settled(page) {
  let last = await saved(page);
  for (let i = 0; i < 100; i++) {
    await page.waitForTimeout(300);
    const next = await saved(page);
    if (next.equals(last)) return next;
    last = next;
  }
  throw new Error('the picture never rests');
}
