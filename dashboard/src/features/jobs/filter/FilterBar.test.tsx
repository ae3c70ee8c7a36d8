import { fireEvent, screen, waitFor } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { aJob } from "@/testing/jobs";
import { type Asked, open, serve } from "@/testing/pages";
import { JobsPage } from "../JobsPage";
import { readJobsView } from "../view";

const JOBS = [
  aJob({ id: "1", name: "waits", project: "vision", labels: { team: "a b" } }),
  aJob({ id: "2", name: "runs", owner: "ada" }),
];
const TOTALS = { states: { running: 1_200, failed: 3 }, gpus_in_use: 7 };

function answer({ path, query }: Asked) {
  if (path === "/v1/nodes") return { body: { items: [{ name: "gpu-9" }] } };
  if (path === "/v1/series") return { body: { jobs: [] } };
  if (query.get("filter")?.includes("gpsu")) {
    const wrong = { message: "no job has a field 'gpsu'", value: "gpsu>4", next_step: "Did you mean gpus?" };
    const errors = [{ pointer: "/query/filter", ...wrong }];
    return { status: 422, body: { title: "Invalid", detail: "filter: gpsu>4", status: 422, code: "invalid", errors } };
  }
  return { body: { items: JOBS, next_cursor: null, total: 1_203, totals: TOTALS } };
}

const page = (search = "") => open("/jobs", JobsPage, search, readJobsView);
const row = async (name: string) => (await screen.findByRole("link", { name })).closest("tr") as HTMLElement;
const field = () => screen.getByLabelText("Filter jobs") as HTMLInputElement;
const chips = () => screen.queryAllByRole("button", { name: /^Remove / }).map((chip) => chip.ariaLabel?.slice(7));
/** A key more, as a browser reports it. */
const type = (text: string) => fireEvent.input(field(), { target: { value: text } });
const enter = () => fireEvent.keyDown(field(), { key: "Enter" });

afterEach(() => vi.unstubAllGlobals());

describe("the filter", () => {
  it("is asked of the service as the address says", async () => {
    const requests = serve(answer);
    page('?state=["failed","queued"]&label=team%3Dnlp&filter=gpus>4 "a b"&sort=name&group=owner');
    await screen.findByLabelText("Filter jobs");
    await waitFor(() => expect(requests.some(({ path }) => path === "/v1/jobs")).toBe(true));
    const { query } = requests.find((asked) => asked.path === "/v1/jobs") as Asked;
    expect(query.getAll("state")).toEqual(["queued", "failed"]);
    const asked = ["label", "filter", "sort", "group", "limit", "totals"].map((name) => query.get(name));
    expect(asked).toEqual(["team=nlp", 'gpus>4 "a b"', "name", "owner", "50", "true"]);
    expect(chips()).toEqual(["gpus>4", '"a b"']);
    expect(screen.getByRole("link", { name: "Remove label team=nlp" })).toBeTruthy();
    expect((await screen.findByRole("button", { name: /^failed/ })).getAttribute("aria-pressed")).toBe("true");
  });

  it("counts the jobs of each state on all pages, and sets it", async () => {
    serve(answer);
    const router = page(`?cursor=${"x".repeat(36)}`);
    await row("waits");
    expect(screen.queryByRole("button", { name: /^paused/ })).toBeNull();
    fireEvent.click(screen.getByRole("button", { name: "running 1,200" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ state: ["running"] }));
  });

  it("looks for a word while one types, once one pauses, as one step of the way back", async () => {
    const requests = serve(answer);
    const router = page();
    await row("waits");
    for (const typed of ["g", "gp", "gpt"]) type(typed);
    expect(router.state.location.search).toEqual({});
    await waitFor(() => expect(router.state.location.search).toEqual({ filter: "gpt" }));
    expect([field().value, chips()]).toEqual(["gpt", []]);
    type("gpt-2");
    await waitFor(() => expect(router.state.location.search).toEqual({ filter: "gpt-2" }));
    const asked = requests.filter(({ path }) => path === "/v1/jobs").map(({ query }) => query.get("filter"));
    expect(asked).toEqual([null, "gpt", "gpt-2"]);
    router.history.back();
    await waitFor(() => expect(router.state.location.search).toEqual({}));
    await waitFor(() => expect(field().value).toBe(""));
  });

  it("takes a condition once it is finished, with Enter or a space, and not half of one", async () => {
    serve(answer);
    const router = page();
    await row("waits");
    type("gpus>");
    await new Promise((done) => setTimeout(done, 300));
    expect(router.state.location.search).toEqual({});
    type("gpus>4");
    enter();
    await waitFor(() => expect(router.state.location.search).toEqual({ filter: "gpus>4" }));
    type('name:"two words ');
    expect(chips()).toEqual(["gpus>4"]);
    type('name:"two words" ');
    await waitFor(() => expect(router.state.location.search).toEqual({ filter: 'gpus>4 name:"two words"' }));
    expect([field().value, chips()]).toEqual(["", ["gpus>4", 'name:"two words"']]);
  });

  it("changes and removes tokens", async () => {
    serve(answer);
    const router = page("?filter=gpus>4 owner:ada lr<1");
    await row("waits");
    fireEvent.click(screen.getByRole("button", { name: "Remove owner:ada" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ filter: "gpus>4 lr<1" }));
    fireEvent.keyDown(field(), { key: "Backspace" });
    expect([field().value, chips()]).toEqual(["lr<1", ["gpus>4"]]);
    type("lr<2");
    enter();
    await waitFor(() => expect(router.state.location.search).toEqual({ filter: "gpus>4 lr<2" }));
    fireEvent.click(screen.getByRole("button", { name: "gpus>4" }));
    expect(field().value).toBe("gpus>4");
  });

  it("marks a token that the service refuses, with the near names", async () => {
    serve(answer);
    page("?filter=gpsu>4 owner:ada");
    const alert = await screen.findByRole("alert");
    expect(alert.textContent).toBe("gpsu>4 no job has a field 'gpsu'. Did you mean gpus?");
    const marked = screen.getByRole("button", { name: "gpsu>4" }).parentElement;
    expect(marked?.dataset.bad).toBe("true");
    expect(screen.getByRole("button", { name: "owner:ada" }).parentElement?.dataset.bad).toBeUndefined();
    expect(field().getAttribute("aria-invalid")).toBe("true");
  });

  it("suggests tokens of what was read, and nodes once the field has the focus", async () => {
    const requests = serve(answer);
    page();
    await row("waits");
    const suggested = () => [...(field().list?.options ?? [])].map((option) => option.value);
    expect(suggested()).toEqual(expect.arrayContaining(["owner:ada", "project:vision", 'label:team="a b"']));
    expect(requests.some(({ path }) => path === "/v1/nodes")).toBe(false);
    fireEvent.focus(field());
    await waitFor(() => expect(suggested()).toContain("node:gpu-9"));
  });

  it("is named where no job matches, and cleared at once", async () => {
    serve(() => ({ body: { items: [], next_cursor: null, total: 0 } }));
    const router = page("?filter=abc&owner=ada&sort=name");
    expect(await screen.findByRole("heading", { name: "No job matches this filter" })).toBeTruthy();
    expect(screen.getByText(/4 or more characters/)).toBeTruthy();
    expect(screen.getByText("abc, owner ada")).toBeTruthy();
    fireEvent.click(screen.getByRole("link", { name: "Remove owner ada" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ filter: "abc", sort: "name" }));
    fireEvent.click(screen.getByRole("link", { name: "Clear the filter" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ sort: "name" }));
    expect(chips()).toEqual([]);
  });

  it("is not blamed for a page behind the last", async () => {
    serve(() => ({ body: { items: [], next_cursor: null } }));
    page(`?owner=ada&cursor=${"x".repeat(36)}`);
    expect(await screen.findByRole("heading", { name: "No more jobs" })).toBeTruthy();
    expect(screen.getByRole("link", { name: "First page" }).getAttribute("href")).toBe("/jobs?owner=ada");
  });
});

describe("in a team", () => {
  const team = (asked: Asked) =>
    asked.path === "/v1/session" ? { body: { name: "ada", is_alone: false } } : answer(asked);

  it("the list begins with the own jobs, and the address says so", async () => {
    const requests = serve(team);
    const router = page();
    await row("runs");
    expect(router.state.location.search).toEqual({ owner: "ada" });
    const owners = () => requests.filter(({ path }) => path === "/v1/jobs").map(({ query }) => query.get("owner"));
    expect(owners()).toEqual(["ada"]);
    const mine = screen.getByRole("button", { name: "Mine" });
    expect(mine.getAttribute("aria-pressed")).toBe("true");
    expect(screen.queryByRole("link", { name: "Clear" })).toBeNull();
    fireEvent.click(screen.getByRole("button", { name: "All" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ owner: "*" }));
    expect(mine.getAttribute("aria-pressed")).toBe("false");
    await waitFor(() => expect(owners()).toEqual(["ada", null]));
  });

  it("a link with a filter is of all people, also once its filter is removed", async () => {
    serve(team);
    const router = page("?filter=gpt");
    await row("runs");
    await waitFor(() => expect(router.state.location.search).toEqual({ filter: "gpt", owner: "*" }));
    fireEvent.click(screen.getByRole("button", { name: "Remove gpt" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ owner: "*" }));
  });

  it("a newcomer finds the way to the jobs of all people", async () => {
    serve((asked) => (asked.path === "/v1/session" ? team(asked) : { body: { items: [], next_cursor: null } }));
    page();
    expect(await screen.findByRole("heading", { name: "You have no jobs yet" })).toBeTruthy();
    const link = screen.getByRole("link", { name: "the jobs of all people" });
    expect(link.getAttribute("href")).toBe("/jobs?owner=*");
  });
});

it("a person alone sees no choice between own and other jobs", async () => {
  serve(answer);
  const router = page("?owner=*");
  await row("runs");
  expect(screen.queryByRole("button", { name: "Mine" })).toBeNull();
  await waitFor(() => expect(router.state.location.search).toEqual({}));
});
