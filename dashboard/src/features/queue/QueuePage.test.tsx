import { cleanup, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { VIEWER } from "@/testing/caller";
import { aJob, aShare } from "@/testing/jobs";
import { open, serve } from "@/testing/pages";
import { QueuePage } from "./QueuePage";

const FIRST = "01a201d6-041d-7787-80c4-00a52f02a2d6";

afterEach(() => vi.unstubAllGlobals());

function answer(items: object[]) {
  return ({ path }: { path: string }) => ({ body: { items: path === "/v1/queue" ? items : [], next_cursor: null } });
}

it("shows who waits for what, in order, and names the job that is waited for", async () => {
  const reason = `behind job ${FIRST}, which needs the same devices`;
  const wide = aJob({
    id: FIRST,
    name: "wide",
    state: "queued",
    queue: { position: 1, reason: "waits for 1 more", code: "no_node" },
  });
  const next = aJob({ id: "2", name: "next", state: "queued", queue: { position: 2, reason } });
  serve(answer([{ ...wide, spec: { resources: { gpus: 8 } } }, next]));
  open("/queue", QueuePage);
  const rows = (await screen.findAllByRole("row")).slice(1).map((row) => row.textContent);
  expect(rows[0]).toMatch(/^1widedefault508 deviceswaits for 1 moreonce a node is ready/);
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
  expect(rows[1]).toContain("not processed yet");
  expect(screen.getByRole("link", { name: "by ada" }).getAttribute("href")).toBe("/jobs?owner=ada");
});

it("changes a priority, cancels and says why, in the row of a job that one controls", async () => {
  const place = { position: 2, reason: "waits for 1" };
  const jobs = [
    aJob({ id: "1", name: "mine", state: "queued", owner: "vera", queue: place }),
    aJob({ id: "2", name: "theirs", state: "queued", owner: "ada", queue: place }),
  ];
  const rights = { ...VIEWER, rights_in: { default: ["job.read", "job.control_own"] }, is_alone: true };
  const ahead = [{ id: "3", name: "wide", project: "nlp", owner: "lea", devices: 8, position: 1 }];
  const why = { start: "no start is known: x", ahead, ahead_count: 2, limit: { seconds: 86_400, source: "service" } };
  const requests = serve(({ path, method }) => {
    if (path === "/v1/session") return { body: rights };
    if (path.endsWith("/why")) return { body: why };
    return { body: method === "GET" ? { items: path === "/v1/queue" ? jobs : [] } : jobs[0] };
  });
  open("/queue", QueuePage);
  fireEvent.click(await screen.findByRole("button", { name: "Priority 50 of mine: change" }));
  const field = screen.getByLabelText("Priority of mine");
  fireEvent.change(field, { target: { value: "80" } });
  fireEvent.submit(field);
  await screen.findByRole("button", { name: "Priority 50 of mine: change" });
  fireEvent.click(screen.getByRole("button", { name: "Cancel mine" }));
  fireEvent.click(await screen.findByRole("button", { name: "Cancel the job" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  const changes = requests.filter(({ method }) => method !== "GET").map(({ method, path }) => `${method} ${path}`);
  expect(changes).toEqual(["PATCH /v1/jobs/1", "POST /v1/jobs/1/cancel"]);
  expect(screen.queryByRole("button", { name: /theirs: change|Cancel theirs/ })).toBeNull();
  fireEvent.click(screen.getByRole("button", { name: "Why theirs waits" }));
  const row = (await screen.findByText(/Time limit: 1 d, default of the service/)).closest("tr");
  expect(row?.textContent).toMatch(/Waits for 1.*2 jobs ahead of it:1wide 8 devices, nlp, by lea1 more job/);
});

it("shows more pages on request, and a job that has moved between two of them once", async () => {
  const [one, two, three] = ["one", "two", "three"].map((name, at) =>
    aJob({ id: name, name, state: "queued", queue: { position: at + 1, reason: "waits for 1" } }),
  );
  const pages: Record<string, object> = {
    "": { items: [one, two], next_cursor: "2" },
    2: { items: [two, three], next_cursor: null },
  };
  serve(({ path, query }) => ({
    body: path === "/v1/queue" ? pages[query.get("cursor") ?? ""] : { items: [], next_cursor: null },
  }));
  open("/queue", QueuePage);
  expect(await screen.findByText("The first 2 jobs that wait.")).toBeTruthy();
  fireEvent.click(screen.getByRole("button", { name: "Show more jobs that wait" }));
  expect(await screen.findByText("3 jobs wait.")).toBeTruthy();
  expect(screen.getAllByRole("row")).toHaveLength(4);
  expect(screen.queryByRole("button", { name: "Show more jobs that wait" })).toBeNull();
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

describe("in a team with several projects", () => {
  const jobs = Array.from({ length: 8 }, (_, index) => {
    const reason = index === 1 ? "waits for 1 more" : `behind job ${FIRST}, which needs the same devices`;
    const project = index < 2 ? "vision" : "nlp";
    return aJob({ id: `${index}`, name: `job-${index}`, project, queue: { position: index + 1, reason } });
  });
  const nlp = aShare({ project: "nlp", weight: 2, entitled: 5.333, in_use: 6, queued: 6 });

  function team(shares: object[], isAlone = false) {
    const bodies: Record<string, object> = {
      "/v1/session": { name: "ada", is_alone: isAlone },
      "/v1/shares": { items: shares },
      "/v1/queue": { items: jobs },
    };
    return serve(({ path }) => ({ body: bodies[path] ?? { items: [] } }));
  }

  it("has a section for each, with its share and each reason once", async () => {
    team([nlp, aShare({ project: "vision" })]);
    open("/queue", QueuePage);
    const section = within(await screen.findByRole("region", { name: "nlp" }));
    const facts = section.getAllByRole("term").map((term) => `${term.textContent} ${term.nextSibling?.textContent}`);
    expect(facts).toEqual(["Weight 2", "Entitled to 5.3", "In use 6 devices", "Waiting 6 jobs"]);
    const [, cause, ...others] = section.getAllByRole("row").map((row) => row.textContent);
    expect(cause).toBe("3–86 jobs: behind job …02a2d6, which needs the same devices");
    expect(others).toEqual([]);
    const button = section.getByRole("button", { name: "6 jobs", expanded: false });
    fireEvent.click(button);
    expect(section.getAllByRole("rowheader").map((name) => name.textContent)).toEqual(
      [2, 3, 4, 5, 6, 7].map((index) => `job-${index}`),
    );
    fireEvent.click(button);
    expect(section.queryAllByRole("rowheader")).toEqual([]);
    const vision = within(screen.getByRole("region", { name: "vision" })).getAllByRole("rowheader");
    expect(vision.map((name) => name.textContent)).toEqual(["job-0", "job-1"]);
  });

  it("is one table for who reads one project, or is alone", async () => {
    team([nlp]);
    open("/queue", QueuePage);
    expect(await screen.findAllByRole("rowheader")).toHaveLength(8);
    expect(screen.queryByRole("region")).toBeNull();
    cleanup();
    const requests = team([nlp, aShare()], true);
    open("/queue", QueuePage);
    expect(await screen.findAllByRole("rowheader")).toHaveLength(8);
    expect(requests.some(({ path }) => path === "/v1/shares")).toBe(false);
  });
});
