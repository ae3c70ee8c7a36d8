// @vitest-environment jsdom
import { afterEach, beforeAll, expect, it, vi } from "vitest";
import { Refusal, setUpClient } from "./client";
import { listNodes } from "./generated";
import { client } from "./generated/client.gen";
import { keepToken, readToken } from "./token";

beforeAll(setUpClient);
afterEach(() => {
  sessionStorage.clear();
  vi.restoreAllMocks();
});

function answered(fetch: (request: Request) => Promise<Response>): Promise<unknown> {
  client.setConfig({ fetch: fetch as typeof globalThis.fetch });
  return listNodes().then(
    () => null,
    (error: unknown) => error,
  );
}

it("tells the service's own words", async () => {
  const problem = { title: "Not now", detail: "The disk is full.", status: 507, code: "full" };
  const refusal = await answered(async () => Response.json(problem, { status: 507 }));
  expect(refusal).toMatchObject({ status: 507, message: "The disk is full.", isPassing: true });
});

it.each([
  ["nothing listens", new TypeError("Failed to fetch")],
  ["no answer came in time", new DOMException("signal timed out", "TimeoutError")],
])("says that the service does not answer where %s", async (_, failure) => {
  const refusal = await answered(() => Promise.reject(failure));
  expect(refusal).toBeInstanceOf(Refusal);
  expect(refusal).toMatchObject({ status: 0, isPassing: true });
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
    return Response.json({ title: "Who?" }, { status: 401 });
  });
  expect(sent).toBe("Bearer a token of mine");
  expect(readToken()).toBeNull();
});
