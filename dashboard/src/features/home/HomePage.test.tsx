import { fireEvent, screen, within } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { HomeView, NodeNotice } from "@/api/generated";
import { aJob } from "@/testing/jobs";
import { open, serve } from "@/testing/pages";
import { HomePage } from "./HomePage";

const WAITS = aJob({ id: "2", name: "later", state: "queued", queue: { position: 4, reason: "waits" } });
const EMPTY: HomeView = {
  nodes: 1,
  devices: { total: 2, in_use: 0, idle: 0, free: 2, closed: 0 },
  projects: [],
  others: 0,
  jobs: { running: 0, queued: 0, failed: 0, first: [], waiting: [] },
  attention: [],
};

function node(name: string): NodeNotice {
  return { kind: "node", name, state: "draining", reason: "fan", since: null, drained_by: null, seen_at: null };
}

const TEAM: HomeView = {
  nodes: 5,
  devices: { total: 36, in_use: 20, idle: 3, free: 9, closed: 4 },
  projects: [
    { project: "rl", in_use: 3, idle: 2, entitled: 4.84, queued: 0, people: [{ user: "alan", in_use: 3 }] },
    { project: "nlp", in_use: 13, idle: 1, entitled: null, queued: 9, people: [] },
  ],
  others: 7,
  jobs: { running: 1, queued: 9, failed: 0, first: [aJob({ id: "1" })], waiting: [WAITS] },
  attention: ["a", "b", "c", "d", "e"].map(node),
};

function show(home: HomeView, isAlone: boolean) {
  const requests = serve(({ path }) => ({ body: path === "/v1/session" ? { name: "ada", is_alone: isAlone } : home }));
  open("/", HomePage);
  return requests;
}

afterEach(() => vi.unstubAllGlobals());

it("shows a team its jobs, notices, projects and starts, with one request", async () => {
  const requests = show(TEAM, false);
  const mine = within(await screen.findByRole("region", { name: "My jobs" }));
  expect(mine.getAllByRole("listitem")).toHaveLength(1);
  expect(mine.getByRole("link", { name: "All of my jobs" }).getAttribute("href")).toBe("/jobs?owner=ada");
  const notices = within(screen.getByRole("region", { name: "Needs attention" }));
  expect(notices.getAllByRole("listitem")).toHaveLength(3);
  fireEvent.click(notices.getByRole("button", { name: "2 more", expanded: false }));
  expect(notices.getAllByRole("listitem")).toHaveLength(5);
  const use = within(screen.getByRole("region", { name: "Who uses what" }));
  expect(use.getAllByRole("row").map((row) => row.textContent)).toEqual([
    "ProjectIn useEntitledWaitingPeople",
    "nlp13 1 idle–9",
    "rl3 2 idle4.8–alan 3",
  ]);
  expect(use.getByText("Other projects hold 7 devices.")).toBeTruthy();
  const starts = within(screen.getByRole("region", { name: "When my jobs start" }));
  expect(starts.getByRole("listitem").textContent).toBe("4later1 devicenot processed yet");
  expect(starts.getByText("8 more wait.")).toBeTruthy();
  const figures = screen.getAllByRole("list")[0] as HTMLElement;
  expect(
    within(figures)
      .getAllByRole("listitem")
      .map((item) => item.textContent),
  ).toEqual([
    "20 in use",
    "3 held but idle",
    "9 free",
    "4 on nodes without work",
    "9 jobs wait",
    "36 devices on 5 nodes",
  ]);
  expect(requests.map(({ path }) => path).sort()).toEqual(["/v1/home", "/v1/session"]);
});

it("says that jobs wait where none of them has started", async () => {
  show({ ...TEAM, jobs: { ...TEAM.jobs, first: [] } }, false);
  const mine = within(await screen.findByRole("region", { name: "My jobs" }));
  expect(mine.getByText("None of your jobs has started yet.")).toBeTruthy();
});

it("is small for one person on one machine: templates and commands, no people and no zeros", async () => {
  show(EMPTY, true);
  const start = within(await screen.findByRole("region", { name: "Start a job" }));
  expect(start.getAllByRole("link").map((link) => link.getAttribute("href"))).toEqual([
    "/submit?template=GPT+on+text",
    "/submit?template=Digits",
    "/submit?template=torchrun+script",
  ]);
  expect(start.getByText("lockstep submit job.yaml")).toBeTruthy();
  expect(screen.getAllByRole("region").map((region) => region.getAttribute("aria-label"))).toEqual([
    "My jobs",
    "Start a job",
  ]);
  expect(document.body.textContent).not.toContain("0 ");
});

it("says what failed, and keeps nothing else", async () => {
  serve(({ path }) =>
    path === "/v1/session" ? { body: {} } : { status: 403, body: { title: "Forbidden", detail: "it needs job.read" } },
  );
  open("/", HomePage);
  expect((await screen.findByRole("alert")).textContent).toContain("it needs job.read");
  expect(screen.queryByRole("region")).toBeNull();
});
