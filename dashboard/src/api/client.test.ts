// @vitest-environment jsdom
import { afterEach, beforeAll, expect, it, vi } from "vitest";
import { Failure, fetchUnlessSilent, SILENCE_SECONDS, setUpClient } from "./client";
import { listNodes } from "./generated";
import { client } from "./generated/client.gen";
import { keepToken, readRefusal, readToken } from "./token";

beforeAll(setUpClient);
afterEach(() => {
  sessionStorage.clear();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function answered(fetch: (request: Request) => Promise<Response>): Promise<unknown> {
  client.setConfig({ fetch: fetch as typeof globalThis.fetch });
  return listNodes().then(
    () => null,
    (error: unknown) => error,
  );
}

/** A body that ends with an error after these bytes, as of a connection that a proxy closed. */
function cutAfter(text: string): ReadableStream<Uint8Array> {
  let isSent = false;
  return new ReadableStream({
    pull(controller) {
      if (isSent) return controller.error(new TypeError("network error"));
      isSent = true;
      controller.enqueue(new TextEncoder().encode(text));
    },
  });
}

const JSON_TYPE = { headers: { "Content-Type": "application/json" } };

it("tells the service's own words", async () => {
  const problem = { title: "Not now", detail: "The disk is full.", status: 507, code: "full" };
  const failure = await answered(async () => Response.json(problem, { status: 507 }));
  expect(failure).toMatchObject({ kind: "broken", status: 507, message: "The disk is full.", mayPass: true });
});

it.each([
  ["nothing listens", new TypeError("Failed to fetch")],
  ["no answer came in time", new DOMException("signal timed out", "TimeoutError")],
])("says that the service does not answer where %s", async (_, reason) => {
  const failure = await answered(() => Promise.reject(reason));
  expect(failure).toBeInstanceOf(Failure);
  expect(failure).toMatchObject({ kind: "unreached", status: 0, mayPass: true });
});

it.each([
  ["is cut in its body", async () => new Response(cutAfter('{"items": [1, 2'), JSON_TYPE)],
  ["ends early without an error", async () => new Response('{"items": [1, 2', JSON_TYPE)],
  [
    "is a page of a proxy",
    async () => new Response("<h1>Wait</h1>", { headers: { "Content-Type": "text/html; charset=utf-8" } }),
  ],
])("takes a success that %s for broken, never for a refusal, and never says OK", async (_, fetch) => {
  const failure = await answered(fetch);
  expect(failure).toMatchObject({ kind: "broken", status: 200, mayPass: true });
  const said = failure as Failure;
  expect(`${said.problem.title} ${said.message}`).not.toMatch(/\bOK\b/);
  expect(said.message).toContain("cut off");
});

it.each([
  [400, "refused", false],
  [401, "refused", false],
  [404, "gone", false],
  [408, "unreached", true],
  [409, "refused", false],
  [410, "gone", false],
  [429, "unreached", true],
  [500, "broken", true],
  [502, "unreached", true],
  [503, "unreached", true],
] as const)("takes status %d for %s", async (status, kind, mayPass) => {
  for (const body of [JSON.stringify({ title: "No", status, code: "x" }), "<h1>no</h1>", ""]) {
    const failure = await answered(async () => new Response(body, { status, statusText: "OK" }));
    expect(failure).toMatchObject({ kind, mayPass, status });
    expect((failure as Failure).message).not.toBe("OK");
  }
});

it("gives up an answer only once nothing has arrived for a while, however long it takes in all", async () => {
  vi.useFakeTimers();
  let out: ReadableStreamDefaultController<Uint8Array> | undefined;
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      out = controller;
    },
  });
  vi.stubGlobal("fetch", async (_: Request, init?: RequestInit) => {
    init?.signal?.addEventListener("abort", () => out?.error(init.signal?.reason));
    return new Response(body);
  });
  const response = await fetchUnlessSilent("http://localhost/v1/series");
  const text = response.text().then(
    (read) => read,
    (error: unknown) => error,
  );
  for (let part = 0; part < 5; part += 1) {
    await vi.advanceTimersByTimeAsync(SILENCE_SECONDS * 900);
    out?.enqueue(new TextEncoder().encode("x"));
    await vi.advanceTimersByTimeAsync(0);
  }
  await vi.advanceTimersByTimeAsync(SILENCE_SECONDS * 1_100);
  expect(await text).toMatchObject({ name: "TimeoutError" });
});

it("does not take a query that was given up for a service that does not answer", async () => {
  const abandoned = new DOMException("given up", "AbortError");
  expect(await answered(() => Promise.reject(abandoned))).toBe(abandoned);
});

it("sends the token, and forgets one that the service does not know", async () => {
  keepToken("a token of mine", false);
  let sent: string | null = null;
  await answered(async (request) => {
    sent = request.headers.get("Authorization");
    return Response.json(
      { title: "Who?", detail: "the bearer token was revoked; nothing was written" },
      { status: 401 },
    );
  });
  expect(sent).toBe("Bearer a token of mine");
  expect(readToken()).toBeNull();
  expect(readRefusal()).toBe("The token was refused: the bearer token was revoked.");
  keepToken("another", false);
  expect(readRefusal()).toBeNull();
});

it("keeps a new token when an answer to the one before is late", async () => {
  keepToken("before", false);
  await answered(async () => {
    keepToken("new", false);
    return Response.json({ title: "Who?" }, { status: 401 });
  });
  expect(readToken()).toBe("new");
});
