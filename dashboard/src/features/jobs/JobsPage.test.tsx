import { focusManager } from "@tanstack/react-query";
import { act, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { aJob, PROGRESS } from "@/testing/jobs";
import { type Asked, open, serve } from "@/testing/pages";
import { JobsPage } from "./JobsPage";
import { readJobsView } from "./view";

const JOBS = [
  aJob({
    id: "1",
    name: "waits",
    project: "vision",
    state: "queued",
    queue: { position: 3, reason: "behind job x, which is larger", estimated_start: "2020-01-01T12:00:00Z" },
  }),
  aJob({
    id: "2",
    name: "runs",
    owner: "ada",
    labels: { team: "nlp" },
    progress: { ...PROGRESS, latest: { loss: "NaN" }, main: "loss" },
  }),
  aJob({
    id: "3",
    name: "broke",
    state: "failed",
    outcome: { reason: "user_error", message: "script exited with code 1 on rank 1" },
  }),
];

const CURSOR = "01a201d6-041d-7787-80c4-00a52f02a2d6";

function answer({ path, method }: Asked) {
  if (path === "/v1/series") return { body: { jobs: [] } };
  if (method === "POST") {
    const job = JOBS.find((one) => path === `/v1/jobs/${one.id}/cancel`);
    if (job?.id === "2") return { status: 409, body: { title: "Conflict", detail: "job 2 has already succeeded" } };
    return { status: 202, body: { ...job, state: "cancelled" } };
  }
  if (method === "DELETE") return { status: 204, body: null };
  return { body: { items: JOBS, next_cursor: CURSOR, total: 3 } };
}

const page = (search = "") => open("/jobs", JobsPage, search, readJobsView);
const row = async (name: string) => (await screen.findByRole("link", { name })).closest("tr") as HTMLElement;
const press = (key: string) => fireEvent.keyDown(document.body, { key });

beforeEach(() => {
  Element.prototype.scrollIntoView = vi.fn();
});
afterEach(() => vi.unstubAllGlobals());

describe("a row", () => {
  beforeEach(() => void serve(answer));

  it("says why a queued job waits, at which place, and when it is likely to start", async () => {
    page();
    const waits = await row("waits");
    expect(waits.textContent).toContain("#3 behind job x, which is larger");
    expect(within(waits).getByTitle("starts any moment now").textContent).toBe("now");
    expect(within(await row("runs")).queryByTitle(/^starts/)).toBeNull();
  });

  it("leads to the jobs of its owner, its project and its labels, and names nobody where the service does not", async () => {
    page("?state=running&filter=gpt");
    const links = within(await row("runs")).getAllByRole("link");
    const search = (text: string) =>
      new URLSearchParams(
        links
          .find((link) => link.textContent === text)
          ?.getAttribute("href")
          ?.split("?")[1],
      );
    expect([search("ada").get("owner"), search("ada").get("state")]).toEqual(["ada", '["running"]']);
    expect(search("default").get("project")).toBe("default");
    expect(search("team=nlp").get("filter")).toBe("gpt label:team=nlp");
    expect(within(await row("broke")).queryByTitle(/^Jobs of (?!project)/)).toBeNull();
  });

  it("has progress and time left of a running one, and a metric that is no number by name", async () => {
    page();
    const runs = await row("runs");
    expect(within(runs).getByTitle("5 / 10 steps").textContent).toBe("50 %");
    for (const words of ["1 min 30 s", "NaN"]) expect(runs.textContent).toContain(words);
    expect(runs.querySelectorAll("time[title]")).toHaveLength(1);
  });

  it("says why a job failed, and has a bar only while it runs", async () => {
    page();
    expect((await row("broke")).textContent).toContain("user error script exited with code 1 on rank 1");
    expect(within(await row("broke")).queryByText(/%/)).toBeNull();
  });
});

it("tells a first visitor what to do", async () => {
  serve(() => ({ body: { items: [], next_cursor: null } }));
  page();
  expect(await screen.findByText("lockstep submit examples/gpt.yaml")).toBeTruthy();
  expect(screen.getByRole("link", { name: "Write the first job here" }).getAttribute("href")).toBe("/submit");
});

it("says of how many jobs a page is, and leads to the next one and back", async () => {
  const totals = { states: { running: 2, failed: 1 }, gpus_in_use: 12 };
  serve((asked) => {
    const isNext = asked.query.has("cursor");
    const jobs = isNext ? JOBS.slice(2) : JOBS.slice(0, 2);
    if (asked.path !== "/v1/jobs") return answer(asked);
    return { body: { items: jobs, next_cursor: isNext ? null : CURSOR, total: 1_250, totals } };
  });
  const router = page("?filter=gpt");
  expect(await screen.findByText("2 of 1,250 jobs")).toBeTruthy();
  expect(screen.getByText("2 running, 1 failed · 12 GPUs in use")).toBeTruthy();
  await waitFor(() => expect(document.title).toBe("2 running · Jobs · Lockstep"));
  fireEvent.click(screen.getByRole("link", { name: "Next →" }));
  await row("broke");
  await waitFor(() => expect(router.state.location.search).toEqual({ filter: "gpt", cursor: CURSOR }));
  fireEvent.click(await screen.findByRole("button", { name: "← Previous" }));
  await row("waits");
  expect(router.state.location.search).toEqual({ filter: "gpt" });
});

describe("keys", () => {
  it("move the cursor, choose the row and open it", async () => {
    serve(answer);
    const router = page();
    await row("waits");
    press("j");
    press("j");
    expect((await row("runs")).getAttribute("aria-current")).toBe("true");
    press("x");
    expect(within(await row("runs")).getByRole<HTMLInputElement>("checkbox").checked).toBe(true);
    press("k");
    press("Enter");
    await waitFor(() => expect(router.state.location.pathname).toBe("/jobs/1"));
  });

  it("compare the selected jobs, go to what can be done with them, and clear them", async () => {
    serve(answer);
    const router = page();
    await row("waits");
    for (const key of ["j", "x", "c"]) press(key);
    expect(router.state.location.pathname).toBe("/jobs");
    press("a");
    expect(document.activeElement?.textContent).toBe("Cancel 1 job");
    press("Escape");
    expect(screen.queryByText("1 job selected")).toBeNull();
    for (const key of ["x", "j", "x", "c"]) press(key);
    await waitFor(() => expect(router.state.location.pathname).toBe("/compare"));
    expect(router.state.location.search).toEqual({ jobs: ["1", "2"] });
  });
});

describe("selected jobs", () => {
  it("are only those that the filters show: what is hidden is not acted on", async () => {
    const pages: Record<string, { items: typeof JOBS; next_cursor: string | null }> = {
      all: { items: JOBS.slice(0, 2), next_cursor: CURSOR },
      second: { items: JOBS.slice(2), next_cursor: null },
      found: { items: JOBS.slice(1, 2), next_cursor: null },
    };
    serve((asked) => {
      if (asked.path !== "/v1/jobs") return answer(asked);
      const { query } = asked;
      const found = pages[query.has("filter") ? "found" : query.has("cursor") ? "second" : "all"];
      return { body: { ...found, total: found?.items.length } };
    });
    const router = page();
    await row("waits");
    fireEvent.click(screen.getByRole("checkbox", { name: /all jobs on this page/ }));
    const bar = () => screen.queryByRole("region", { name: "Selected jobs" })?.textContent;
    expect(bar()).toContain("2 jobs selected");
    // Another page: none of its rows is selected, and those of the first are dropped.
    await act(() => router.navigate({ to: "/jobs", search: { cursor: CURSOR } }));
    await row("broke");
    await waitFor(() => expect(bar()).toBeUndefined());
    await act(() => router.navigate({ to: "/jobs", search: {} }));
    await row("waits");
    expect(bar()).toBeUndefined();
    fireEvent.click(screen.getByRole("checkbox", { name: /all jobs on this page/ }));
    await act(() => router.navigate({ to: "/jobs", search: { filter: "runs" } }));
    await waitFor(() => expect(screen.queryByRole("link", { name: "waits" })).toBeNull());
    expect(bar()).toBeUndefined();
    fireEvent.click(screen.getByRole("checkbox", { name: /all jobs on this page/ }));
    expect(bar()).toContain("1 job selected");
    // It does not match any more: it leaves the list, and the selection with it.
    pages.found = { items: [], next_cursor: null };
    act(() => {
      focusManager.setFocused(false);
      focusManager.setFocused(true);
    });
    await waitFor(() => expect(bar()).toBeUndefined());
    pages.found = { items: JOBS.slice(1, 2), next_cursor: null };
    act(() => {
      focusManager.setFocused(false);
      focusManager.setFocused(true);
    });
    await row("runs");
    expect(bar()).toBeUndefined();
  });

  it("are cancelled after a question, and each answer is told", async () => {
    const requests = serve(answer);
    page();
    await row("waits");
    fireEvent.click(screen.getByRole("checkbox", { name: "Select all jobs on this page" }));
    // The third one has ended already.
    fireEvent.click(screen.getByRole("button", { name: "Cancel 2 jobs" }));
    const dialog = await screen.findByRole("dialog");
    expect(requests.filter((asked) => asked.method === "POST")).toEqual([]);
    fireEvent.click(within(dialog).getByRole("button", { name: "Cancel 2 jobs" }));
    expect(await within(dialog).findByText("1 job cancelled, 1 refused.")).toBeTruthy();
    expect(within(dialog).getByText("refused: job 2 has already succeeded")).toBeTruthy();
    expect(requests.filter((asked) => asked.method === "POST").map((asked) => asked.path)).toEqual([
      "/v1/jobs/1/cancel",
      "/v1/jobs/2/cancel",
    ]);
  });

  it("are deleted as far as they have ended, and those that have not are named", async () => {
    const requests = serve(answer);
    page();
    await row("waits");
    fireEvent.click(screen.getByRole("checkbox", { name: "Select all jobs on this page" }));
    fireEvent.click(screen.getByRole("button", { name: "Delete 1 job" }));
    const dialog = await screen.findByRole("dialog");
    expect(dialog.textContent).toContain("This cannot be undone. 2 more of the selected have not ended and stay.");
    expect(requests.filter((asked) => asked.method === "DELETE")).toEqual([]);
    fireEvent.click(within(dialog).getByRole("button", { name: "Delete 1 job" }));
    expect(await within(dialog).findByText("1 job deleted.")).toBeTruthy();
    expect(requests.filter((asked) => asked.method === "DELETE").map((asked) => asked.path)).toEqual(["/v1/jobs/3"]);
    fireEvent.click(within(dialog).getByRole("button", { name: "Close" }));
    await waitFor(() => expect(screen.queryByText(/selected/)).toBeNull());
  });

  it("offer only what can be done with them", async () => {
    serve(answer);
    page();
    fireEvent.click(within(await row("broke")).getByRole("checkbox"));
    expect(screen.queryByRole("button", { name: /^Cancel/ })).toBeNull();
    fireEvent.click(within(await row("broke")).getByRole("checkbox"));
    fireEvent.click(within(await row("waits")).getByRole("checkbox"));
    expect(screen.queryByRole("button", { name: /^Delete/ })).toBeNull();
  });

  it("are compared from two on, and cloned one at a time", async () => {
    serve(answer);
    page();
    fireEvent.click(within(await row("waits")).getByRole("checkbox"));
    expect(screen.getByRole("link", { name: "Clone" }).getAttribute("href")).toBe("/submit?clone=%221%22");
    expect(screen.queryByRole("link", { name: "Compare" })).toBeNull();
    fireEvent.click(within(await row("broke")).getByRole("checkbox"));
    expect(screen.queryByRole("link", { name: "Clone" })).toBeNull();
    const address = screen.getByRole("link", { name: "Compare" }).getAttribute("href") ?? "";
    expect(JSON.parse(new URLSearchParams(address.split("?")[1]).get("jobs") ?? "")).toEqual(["1", "3"]);
  });

  it("give their ids to the clipboard, a line each", async () => {
    serve(answer);
    const writeText = vi.fn().mockResolvedValue(undefined);
    Object.defineProperty(navigator, "clipboard", { value: { writeText }, configurable: true });
    page();
    fireEvent.click(within(await row("waits")).getByRole("checkbox"));
    fireEvent.click(within(await row("broke")).getByRole("checkbox"));
    fireEvent.click(screen.getByRole("button", { name: "Copy the ids" }));
    expect(await screen.findByText("copied")).toBeTruthy();
    expect(writeText).toHaveBeenCalledWith("1\n3");
    Reflect.deleteProperty(navigator, "clipboard");
  });
});
