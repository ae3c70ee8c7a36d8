import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { firstScripts, reloadIfReached, reloadIfUpgraded } from "./upgrade";

/** The first script is the same in all builds. */
const html = (name: string) =>
  ["runtime", name].map((each) => `<script type="module" crossorigin src="/assets/${each}.js"></script>`).join("");
const reload = vi.fn();

function serve(answer: () => Promise<Response>): void {
  vi.stubGlobal("fetch", answer);
}

beforeEach(() => {
  reload.mockClear();
  sessionStorage.clear();
  document.head.innerHTML = html("index-old");
});
afterEach(() => vi.unstubAllGlobals());

it("reads the first scripts of a page", () => {
  expect(firstScripts(html("index-abc"))).toBe("/assets/runtime.js /assets/index-abc.js");
  expect(firstScripts("<h1>502</h1>")).toBeNull();
});

it("loads the tab again once for a new build", async () => {
  serve(async () => new Response(html("index-new")));
  await reloadIfUpgraded(reload);
  await reloadIfUpgraded(reload);
  expect(reload).toHaveBeenCalledTimes(1);
  serve(async () => new Response(html("index-newer")));
  await reloadIfUpgraded(reload);
  expect(reload).toHaveBeenCalledTimes(2);
});

it.each([
  ["the build is the same", async () => new Response(html("index-old"))],
  ["a gateway answers", async () => new Response("<h1>502</h1>", { status: 502 })],
  ["nothing answers", () => Promise.reject(new TypeError("Failed to fetch"))],
])("does not load the tab again where %s", async (_, answer) => {
  serve(answer);
  await reloadIfUpgraded(reload);
  expect(reload).not.toHaveBeenCalled();
});

it("says whether a retry reached the service, and keeps the page where it did not", async () => {
  serve(() => Promise.reject(new TypeError("Failed to fetch")));
  expect(await reloadIfReached(reload)).toBe(false);
  expect(reload).not.toHaveBeenCalled();
  serve(async () => new Response(html("index-old")));
  expect(await reloadIfReached(reload)).toBe(true);
  expect(reload).toHaveBeenCalledTimes(1);
});
