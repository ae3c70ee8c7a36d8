import { defaultParseSearch, defaultStringifySearch } from "@tanstack/react-router";
import { describe, expect, it } from "vitest";
import {
  ALL,
  asQuery,
  changed,
  filtersSet,
  isFiltered,
  isLabel,
  type JobsView,
  PAGE_SIZE,
  partOf,
  readJobsView,
  STATES,
  settled,
  toggled,
  typedOf,
} from "./view";

const reload = (view: JobsView) => readJobsView(defaultParseSearch(defaultStringifySearch({ ...view })));

describe("a view in the address", () => {
  it.each<JobsView>([
    {},
    { state: ["queued"] },
    { state: ["running", "failed"], order: "oldest" },
    { search: "64", project: "true", label: "seed=6672" },
    { owner: "ada@example.org", node: "gpu-1" },
    { owner: ALL, project: `*${"x".repeat(63)}*` },
    { search: "[1]", label: "why=a=b & c?", cursor: "01a201d7-fa0a-73e6-9401-aa9aef83b658" },
  ])("is the same after a reload: %j", (view) => {
    expect(reload(view)).toEqual(view);
  });

  it("is the same after a reload for any choice of states", () => {
    for (let bits = 0; bits < 2 ** STATES.length - 1; bits += 1) {
      const state = STATES.filter((_, place) => bits & (1 << place));
      expect(reload({ state }).state ?? []).toEqual(state);
    }
  });

  it("takes what a person writes by hand", () => {
    expect(readJobsView({ state: "running" })).toEqual({ state: ["running"] });
    expect(readJobsView({ search: 64 })).toEqual({ search: "64" });
  });

  it("takes the name of an earlier version's address as what is searched for", () => {
    expect(readJobsView({ name: "gpt" })).toEqual({ search: "gpt" });
    expect(readJobsView({ name: "gpt", search: "bert" })).toEqual({ search: "bert" });
  });

  it("leaves out what does not fit, and what is the default anyway", () => {
    expect(readJobsView({ state: ["gone", 3], label: "team", search: " ", order: "newest", page: 2 })).toEqual({});
    expect(readJobsView({ state: [...STATES] })).toEqual({});
    expect(readJobsView({ search: "x".repeat(64), label: "=v", project: { a: 1 } })).toEqual({});
    expect(readJobsView({ owner: "x".repeat(258), node: [] })).toEqual({});
  });
});

describe("a change of the view", () => {
  const page: JobsView = { state: ["failed"], search: "gpt", cursor: "01a2" };

  it("goes back to the first page and keeps the other filters", () => {
    expect(changed(page, { search: undefined })).toEqual({ state: ["failed"] });
    expect(changed(page, { order: "oldest" })).toEqual({ state: ["failed"], search: "gpt", order: "oldest" });
  });

  it("turns a state on and off", () => {
    const both = toggled(page, "queued");
    expect(both).toEqual({ state: ["queued", "failed"], search: "gpt" });
    expect(toggled(toggled(both, "queued"), "failed")).toEqual({ search: "gpt" });
  });
});

it("asks the service for one page of what the view says", () => {
  expect(asQuery({ state: ["failed"], label: "team=nlp" })).toEqual({
    state: ["failed"],
    label: "team=nlp",
    sort: "-created",
    limit: PAGE_SIZE,
  });
  expect(asQuery({ owner: "ada", project: "vis*" })).toMatchObject({ owner: "ada", project: "vis*" });
  expect(asQuery({ owner: ALL }).owner).toBeUndefined();
});

it.each([
  ["ad", "*ad*", "ad"],
  ["a*a", "a*a", "a*a"],
  ["*", ALL, undefined],
])("looks for %s as %s, and shows it as %s", (typed, pattern, shown) => {
  expect([partOf(typed), typedOf(pattern)]).toEqual([pattern, shown]);
});

it.each<[JobsView, JobsView]>([
  [{}, { owner: "ada" }],
  [{ order: "oldest" }, { owner: "ada", order: "oldest" }],
  [{ project: "nlp" }, { project: "nlp", owner: ALL }],
  [{ cursor: "01a2" }, { cursor: "01a2", owner: ALL }],
  [{ owner: "ben" }, { owner: "ben" }],
  [{ owner: ALL }, { owner: ALL }],
])("reads %j in a team as %j, and for a person alone without an owner", (view, meant) => {
  expect(settled(view, "ada")).toEqual(meant);
  expect(settled(meant, "ben")).toBe(meant);
  expect(settled(view, null)).toEqual(view.owner === ALL ? {} : view);
});

describe("the filters that are set", () => {
  const all: JobsView = {
    state: ["queued", "failed"],
    search: "gpt",
    owner: "ada",
    project: "vision",
    node: "gpu-1",
    label: "a=b",
    order: "oldest",
    cursor: "01a2",
  };

  it("are what hides jobs, and not the order or the page", () => {
    expect(isFiltered({ order: "oldest", cursor: "01a2", owner: ALL })).toBe(false);
    const hiding = (["state", "search", "owner", "project", "node", "label"] as const).map((key) => [key, all[key]]);
    for (const one of hiding) expect(isFiltered(Object.fromEntries([one]))).toBe(true);
    expect(filtersSet(all).map(({ name, value }) => `${name} ${value}`)).toEqual([
      "state queued or failed",
      "name or id gpt",
      "owner ada",
      "project vision",
      "node gpu-1",
      "label a=b",
    ]);
  });

  it("are left out one at a time", () => {
    for (const { without } of filtersSet(all)) {
      const { cursor: _, ...kept } = all;
      expect(Object.entries(kept)).toEqual(expect.arrayContaining(Object.entries(without)));
      expect(filtersSet(without)).toHaveLength(5);
    }
  });
});

it.each([
  ["team=nlp", true],
  ["team=", true],
  ["a=b=c", true],
  ["team", false],
  ["=nlp", false],
  ["", false],
])("%s as a label: %s", (typed, good) => {
  expect(isLabel(typed)).toBe(good);
});
