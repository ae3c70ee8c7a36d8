import { fireEvent, screen, waitFor } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { aJob } from "@/testing/jobs";
import { type Asked, open, serve } from "@/testing/pages";
import { JobsPage } from "./JobsPage";
import { readJobsView } from "./view";

const JOBS = [aJob({ id: "1", name: "waits", project: "vision" }), aJob({ id: "2", name: "runs", owner: "ada" })];

function answer({ path }: Asked) {
  if (path === "/v1/nodes") return { body: { items: [{ name: "gpu-9" }] } };
  return { body: { items: JOBS, next_cursor: null } };
}

const page = (search = "") => open("/jobs", JobsPage, search, readJobsView);
const row = async (name: string) => (await screen.findByRole("link", { name })).closest("tr") as HTMLElement;

afterEach(() => vi.unstubAllGlobals());

describe("the filters", () => {
  it("are asked of the service as the address says", async () => {
    const requests = serve(answer);
    page('?state=["failed","queued"]&label=team%3Dnlp&order=oldest');
    await row("waits");
    const { query } = requests.find((asked) => asked.path === "/v1/jobs") as Asked;
    expect(query.getAll("state")).toEqual(["queued", "failed"]);
    expect([query.get("label"), query.get("sort"), query.get("limit")]).toEqual(["team=nlp", "created", "50"]);
    expect(screen.getByRole("button", { name: "failed" }).getAttribute("aria-pressed")).toBe("true");
  });

  it("go into the address, and start the list anew", async () => {
    serve(answer);
    const router = page("?cursor=9");
    await row("waits");
    fireEvent.click(screen.getByRole("button", { name: "running" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ state: ["running"] }));
    fireEvent.change(screen.getByLabelText("Owner"), { target: { value: "ada" } });
    await waitFor(() => expect(router.state.location.search).toEqual({ state: ["running"], owner: "*ada*" }));
  });

  it("search while one types, once one pauses, as one step of the way back", async () => {
    const requests = serve(answer);
    const router = page();
    await row("waits");
    const name = screen.getByLabelText("Name or id");
    for (const typed of ["g", "gp", "gpt "]) fireEvent.input(name, { target: { value: typed } });
    expect(router.state.location.search).toEqual({});
    await waitFor(() => expect(router.state.location.search).toEqual({ search: "gpt" }));
    expect((name as HTMLInputElement).value).toBe("gpt ");
    fireEvent.input(name, { target: { value: "gpt-2" } });
    await waitFor(() => expect(router.state.location.search).toEqual({ search: "gpt-2" }));
    const asked = requests.filter(({ path }) => path === "/v1/jobs").map(({ query }) => query.get("search"));
    expect(asked).toEqual([null, "gpt", "gpt-2"]);
    router.history.back();
    await waitFor(() => expect((name as HTMLInputElement).value).toBe(""));
    expect(router.state.location.search).toEqual({});
  });

  it("take an owner and a node with Enter, and not half a word", async () => {
    const requests = serve(answer);
    const router = page();
    await row("waits");
    for (const [label, value, key, taken] of [
      ["Owner", "ada", "owner", "*ada*"],
      ["Node", "gpu-9", "node", "gpu-9"],
    ] as const) {
      const field = screen.getByLabelText(label);
      const before = router.state.location.search;
      fireEvent.input(field, { target: { value } });
      expect(router.state.location.search).toEqual(before);
      fireEvent.keyDown(field, { key: "Enter" });
      await waitFor(() => expect(router.state.location.search).toEqual({ ...before, [key]: taken }));
    }
    await waitFor(() => expect(requests.at(-1)?.query.get("node")).toBe("gpu-9"));
    fireEvent.click(screen.getByRole("link", { name: "Show all jobs" }));
    await waitFor(() => expect((screen.getByLabelText("Owner") as HTMLInputElement).value).toBe(""));
    await waitFor(() => expect(router.state.location.search).toEqual({}));
  });

  it("suggest what is on the page, and nodes once they are asked for", async () => {
    const requests = serve(answer);
    page();
    await row("waits");
    const suggested = (label: string) =>
      [...((screen.getByLabelText(label) as HTMLInputElement).list?.options ?? [])].map((option) => option.value);
    expect([suggested("Owner"), suggested("Node")]).toEqual([["ada"], []]);
    expect(requests.some(({ path }) => path === "/v1/nodes")).toBe(false);
    fireEvent.focus(screen.getByLabelText("Node"));
    await waitFor(() => expect(suggested("Node")).toEqual(["gpu-9"]));
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

  it("are named where no job matches, and left out one by one or all at once", async () => {
    serve(() => ({ body: { items: [], next_cursor: null } }));
    const router = page("?search=abc&owner=ada&order=oldest");
    expect(await screen.findByRole("heading", { name: "No job matches these filters" })).toBeTruthy();
    expect(screen.getByText(/4 or more characters/)).toBeTruthy();
    expect(screen.getByText("abc").closest("li")?.textContent).toContain("name or id abc");
    fireEvent.click(screen.getByRole("link", { name: "Leave out name or id abc" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ owner: "ada", order: "oldest" }));
    expect(screen.queryByRole("link", { name: /^Leave out/ })).toBeNull();
    for (const link of screen.getAllByRole("link", { name: "Show all jobs" })) {
      expect(link.getAttribute("href")).not.toContain("ada");
    }
  });

  it("are not blamed for a page behind the last", async () => {
    serve(() => ({ body: { items: [], next_cursor: null } }));
    page("?owner=ada&cursor=9");
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
    fireEvent.click(screen.getByRole("button", { name: "All" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ owner: "*" }));
    expect(mine.getAttribute("aria-pressed")).toBe("false");
    await waitFor(() => expect(owners()).toEqual(["ada", null]));
  });

  it("a link with a filter is of all people, also once its filter is removed", async () => {
    serve(team);
    const router = page("?search=gpt");
    await row("runs");
    await waitFor(() => expect(router.state.location.search).toEqual({ search: "gpt", owner: "*" }));
    fireEvent.input(screen.getByLabelText("Name or id"), { target: { value: "" } });
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
