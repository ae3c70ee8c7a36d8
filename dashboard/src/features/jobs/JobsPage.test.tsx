import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { aJob } from "@/testing/jobs";
import { type Asked, open, serve } from "@/testing/pages";
import { JobsPage } from "./JobsPage";
import { readJobsView } from "./view";

const JOBS = [
  aJob({ id: "1", name: "waits", state: "queued", queue: { position: 3, reason: "behind job x, which is larger" } }),
  aJob({
    id: "2",
    name: "runs",
    labels: { team: "nlp" },
    progress: { step: 5, steps: 10, samples: null, fraction: 0.5, eta_seconds: 90, latest: { "train/loss": "NaN" } },
  }),
  aJob({
    id: "3",
    name: "broke",
    state: "failed",
    outcome: { reason: "user_error", message: "script exited with code 1 on rank 1" },
  }),
];

function answer({ path, method }: Asked) {
  if (path === "/v1/series") return { body: { jobs: [] } };
  if (method === "POST") {
    const job = JOBS.find((one) => path === `/v1/jobs/${one.id}/cancel`);
    if (job?.id === "2") return { status: 409, body: { title: "Conflict", detail: "job 2 has already succeeded" } };
    return { status: 202, body: { ...job, state: "cancelled" } };
  }
  return { body: { items: JOBS, next_cursor: "3" } };
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

  it("says why a queued job waits, and at which place", async () => {
    page();
    expect((await row("waits")).textContent).toContain("#3 behind job x, which is larger");
  });

  it("has the progress of a running one, and a loss that is no number by name", async () => {
    page();
    const text = (await row("runs")).textContent;
    for (const words of ["5 / 10 steps", "50 %", "1 min 30 s left", "NaN"]) expect(text).toContain(words);
  });

  it("says why a job failed", async () => {
    page();
    expect((await row("broke")).textContent).toContain("user error script exited with code 1 on rank 1");
  });
});

describe("the filters", () => {
  it("are asked of the service as the address says", async () => {
    const requests = serve(answer);
    page('?state=["failed","queued"]&label=team%3Dnlp&order=oldest');
    await row("waits");
    const { query } = requests.find((asked) => asked.path === "/v1/jobs") as Asked;
    expect(query.getAll("state")).toEqual(["queued", "failed"]);
    expect([query.get("label"), query.get("order"), query.get("limit")]).toEqual(["team=nlp", "oldest", "50"]);
    expect(screen.getByRole("button", { name: "failed" }).getAttribute("aria-pressed")).toBe("true");
  });

  it("go into the address, and start the list anew", async () => {
    serve(answer);
    const router = page("?cursor=9");
    await row("waits");
    fireEvent.click(screen.getByRole("button", { name: "running" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ state: ["running"] }));
    const name = screen.getByRole("searchbox", { name: "Name" });
    fireEvent.change(name, { target: { value: "gpt" } });
    expect(router.state.location.search).toEqual({ state: ["running"] });
    fireEvent.keyDown(name, { key: "Enter" });
    await waitFor(() => expect(router.state.location.search).toEqual({ state: ["running"], name: "gpt" }));
  });

  it("do not take a label that the service would refuse", async () => {
    const requests = serve(answer);
    const router = page();
    await row("waits");
    const label = screen.getByRole("searchbox", { name: /^Label/ });
    fireEvent.change(label, { target: { value: "nlp" } });
    fireEvent.keyDown(label, { key: "Enter" });
    expect(screen.getByText("Write it as key=value.")).toBeTruthy();
    expect(router.state.location.search).toEqual({});
    expect(requests.every((asked) => !asked.query.has("label"))).toBe(true);
  });

  it("offer to show all jobs where none matches", async () => {
    serve(() => ({ body: { items: [], next_cursor: null } }));
    page("?name=nothing");
    expect(await screen.findByRole("heading", { name: "No job matches these filters" })).toBeTruthy();
    expect(screen.getAllByRole("link", { name: "Show all jobs" }).length).toBeGreaterThan(0);
  });
});

it("tells a first visitor what to do", async () => {
  serve(() => ({ body: { items: [], next_cursor: null } }));
  page();
  expect(await screen.findByText("lockstep submit examples/gpt.yaml")).toBeTruthy();
  expect(screen.getByRole("link", { name: "Write the first job here" }).getAttribute("href")).toBe("/submit");
});

it("finds the page before by asking the other way round", async () => {
  const many = Array.from({ length: 51 }, (_, place) => aJob({ id: `before-${place}` }));
  const requests = serve((asked) =>
    asked.query.get("order") === "oldest" ? { body: { items: many, next_cursor: null } } : answer(asked),
  );
  const router = page("?name=gpt&cursor=9");
  await row("waits");
  fireEvent.click(screen.getByRole("button", { name: /Newer/ }));
  await waitFor(() => expect(router.state.location.search).toEqual({ name: "gpt", cursor: "before-50" }));
  const asked = requests.find((one) => one.query.get("order") === "oldest")?.query;
  expect([asked?.get("cursor"), asked?.get("limit"), asked?.get("name")]).toEqual(["1", "51", "gpt"]);
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
});

describe("chosen jobs", () => {
  it("are cancelled after a question, and each answer is told", async () => {
    const requests = serve(answer);
    page();
    await row("waits");
    fireEvent.click(screen.getByRole("checkbox", { name: "Choose all jobs on this page" }));
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
});
