import { defaultParseSearch, defaultStringifySearch } from "@tanstack/react-router";
import { describe, expect, it } from "vitest";
import { asQuery, changed, isFiltered, isLabel, type JobsView, PAGE_SIZE, readJobsView, STATES, toggled } from "./view";

const reload = (view: JobsView) => readJobsView(defaultParseSearch(defaultStringifySearch({ ...view })));

describe("a view in the address", () => {
  it.each<JobsView>([
    {},
    { state: ["queued"] },
    { state: ["running", "failed"], order: "oldest" },
    { name: "64", project: "true", label: "seed=6672" },
    { name: "[1]", label: "why=a=b & c?", cursor: "01a201d7-fa0a-73e6-9401-aa9aef83b658" },
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
    expect(readJobsView({ name: 64 })).toEqual({ name: "64" });
  });

  it("leaves out what does not fit, and what is the default anyway", () => {
    expect(readJobsView({ state: ["gone", 3], label: "team", name: " ", order: "newest", page: 2 })).toEqual({});
    expect(readJobsView({ state: [...STATES] })).toEqual({});
    expect(readJobsView({ name: "x".repeat(64), label: "=v", project: { a: 1 } })).toEqual({});
  });
});

describe("a change of the view", () => {
  const page: JobsView = { state: ["failed"], name: "gpt", cursor: "01a2" };

  it("goes back to the first page and keeps the other filters", () => {
    expect(changed(page, { name: undefined })).toEqual({ state: ["failed"] });
    expect(changed(page, { order: "oldest" })).toEqual({ state: ["failed"], name: "gpt", order: "oldest" });
  });

  it("turns a state on and off", () => {
    const both = toggled(page, "queued");
    expect(both).toEqual({ state: ["queued", "failed"], name: "gpt" });
    expect(toggled(toggled(both, "queued"), "failed")).toEqual({ name: "gpt" });
  });
});

it("asks the service for one page of what the view says", () => {
  expect(asQuery({ state: ["failed"], label: "team=nlp" })).toEqual({
    state: ["failed"],
    label: "team=nlp",
    order: "newest",
    limit: PAGE_SIZE,
  });
});

it("is filtered by what hides jobs, and not by order or page", () => {
  expect(isFiltered({ order: "oldest", cursor: "01a2" })).toBe(false);
  for (const view of [{ state: ["failed"] }, { name: "a" }, { project: "b" }, { label: "a=b" }] as JobsView[]) {
    expect(isFiltered(view)).toBe(true);
  }
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
