import { screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { aJob } from "@/testing/jobs";
import { open, serve } from "@/testing/pages";
import { QueuePage } from "./QueuePage";

const FIRST = "01a201d6-041d-7787-80c4-00a52f02a2d6";

afterEach(() => vi.unstubAllGlobals());

function answer(items: object[]) {
  return ({ path }: { path: string }) => ({ body: { items: path === "/v1/queue" ? items : [], next_cursor: null } });
}

it("shows who waits for what, in order, and names the job that is waited for", async () => {
  const reason = `behind job ${FIRST}, which needs the same devices`;
  const wide = aJob({ id: FIRST, name: "wide", state: "queued", queue: { position: 1, reason: "waits for 1 more" } });
  const next = aJob({ id: "2", name: "next", state: "queued", queue: { position: 2, reason } });
  serve(answer([{ ...wide, spec: { resources: { gpus: 8 } } }, next]));
  open("/queue", QueuePage);
  const rows = (await screen.findAllByRole("row")).slice(1).map((row) => row.textContent);
  expect(rows[0]).toMatch(/^1widedefault508 deviceswaits for 1 morenot known/);
  expect(rows[1]).toContain("behind job wide, which needs the same devices");
  expect(screen.getAllByRole("link", { name: "wide" }).map((link) => link.getAttribute("href"))).toEqual([
    `/jobs/${FIRST}`,
    `/jobs/${FIRST}`,
  ]);
  expect(await screen.findByText(/No node is registered/)).toBeTruthy();
});

it("says when a job is likely to start, and whose it is", async () => {
  const start = new Date(Date.now() + 25 * 60_000 + 5_000).toISOString();
  const place = (position: number, estimated_start: string | null) => ({
    position,
    reason: "waits for 1",
    estimated_start,
  });
  const soon = aJob({ id: "1", name: "soon", state: "queued", owner: "ada", queue: place(1, start) });
  const later = aJob({ id: "2", name: "later", state: "queued", owner: "", queue: place(2, null) });
  serve(answer([soon, later]));
  open("/queue", QueuePage);
  const rows = (await screen.findAllByRole("row")).slice(1).map((row) => row.textContent);
  expect(rows[0]).toMatch(/about (tomorrow )?\d\d:\d\din 25 min/);
  expect(rows[1]).toContain("not known");
  expect(screen.getByRole("link", { name: "by ada" }).getAttribute("href")).toBe("/jobs?owner=ada");
});

it("says that nothing waits", async () => {
  serve(answer([]));
  open("/queue", QueuePage);
  expect(await screen.findByRole("heading", { name: "Nothing waits" })).toBeTruthy();
});

it("shows the jobs of the project in the address", async () => {
  const requests = serve(answer([]));
  open("/queue", QueuePage, "?project=nlp");
  expect(await screen.findByRole("heading", { name: "Nothing waits in this project" })).toBeTruthy();
  expect(screen.getByRole("link", { name: "Show the whole queue" }).getAttribute("href")).toBe("/queue");
  expect(requests.find(({ path }) => path === "/v1/queue")?.query.get("project")).toBe("nlp");
});
