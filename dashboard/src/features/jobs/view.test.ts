import { defaultParseSearch, defaultStringifySearch } from "@tanstack/react-router";
import { describe, expect, it } from "vitest";
import {
  ALL,
  asQuery,
  changed,
  filterWords,
  isFiltered,
  type JobsView,
  PAGE_SIZE,
  partsSet,
  placeOf,
  readJobsView,
  STATES,
  seen,
  settled,
  toggled,
  unfiltered,
} from "./view";

const reload = (view: JobsView) => readJobsView(defaultParseSearch(defaultStringifySearch({ ...view })));

describe("a view in the address", () => {
  it.each<JobsView>([
    {},
    { state: ["queued"] },
    { state: ["running", "failed"], sort: "name" },
    { filter: "64", project: "true", label: "seed=6672" },
    { filter: 'owner:ada gpus>4 "two words" lr<1e-3' },
    { owner: "ada@example.org", node: "gpu-1" },
    { owner: ALL, project: `*${"x".repeat(63)}*` },
    { filter: "[1]", label: "why=a=b & c?", cursor: "01a201d7-fa0a-73e6-9401-aa9aef83b658" },
    { columns: "state,metric:val/loss:min,setting:train.optimizer.lr", sort: "-metric:val/loss:min" },
    { columns: ["metric:a,b:last", "gpus"], group: "label:my team", open: ["a, b", "c"] },
    { sort: "name", cursor: "WyItbmFtZSIsbnVsbCxbImdwdCJdLCIwMWEyIl0xMjM0NTY3ODk" },
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
    expect(readJobsView({ filter: 64 })).toEqual({ filter: "64" });
  });

  it("leaves out what does not fit, and what is the default anyway", () => {
    expect(readJobsView({ state: ["gone", 3], label: "team", filter: " ", sort: "-created", page: 2 })).toEqual({});
    expect(readJobsView({ state: [...STATES] })).toEqual({});
    expect(readJobsView({ filter: "x".repeat(2_001), label: "=v", project: { a: 1 }, columns: "" })).toEqual({});
    expect(readJobsView({ owner: "x".repeat(258), node: [], open: "a", cursor: "9" })).toEqual({});
  });
});

describe("a change of the view", () => {
  const page: JobsView = { state: ["failed"], filter: "gpt", group: "owner", cursor: "x".repeat(36) };

  it("goes back to the first page and keeps the other filters", () => {
    expect(changed(page, { filter: undefined })).toEqual({ state: ["failed"], group: "owner" });
    expect(changed(page, { sort: "created" })).toEqual({ ...page, cursor: undefined, sort: "created" });
  });

  it("of its columns or open groups stays on the page", () => {
    expect(seen(page, { columns: "gpus", open: "ada" })).toEqual({ ...page, columns: "gpus", open: "ada" });
    expect(placeOf(seen(page, { columns: "gpus", open: "ada" }))).toBe(placeOf(page));
    expect(placeOf(changed(page, {}))).not.toBe(placeOf(page));
  });

  it("turns a state on and off", () => {
    const both = toggled(page, "queued");
    expect(both.state).toEqual(["queued", "failed"]);
    expect(toggled(toggled(both, "queued"), "failed").state).toBeUndefined();
  });

  it("to all jobs keeps order, columns and groups", () => {
    const view = { ...page, sort: "name", columns: "gpus" };
    expect(unfiltered(view)).toEqual({ owner: ALL, sort: "name", columns: "gpus", group: "owner" });
  });
});

it("asks the service for one page of what the view says", () => {
  expect(
    asQuery({ state: ["failed"], label: "team=nlp", columns: "gpus,metric:a/b:last" }, ["metric:a/b:last"]),
  ).toEqual({
    state: ["failed"],
    label: "team=nlp",
    sort: "-created",
    columns: ["metric:a/b:last"],
    totals: true,
    limit: PAGE_SIZE,
  });
  expect(asQuery({ owner: "ada", project: "vis*", group: "kind" }, [])).toMatchObject({ owner: "ada", group: "kind" });
  expect(asQuery({ owner: ALL }, []).owner).toBeUndefined();
});

it.each<[JobsView, JobsView]>([
  [{}, { owner: "ada" }],
  [
    { sort: "name", columns: "gpus" },
    { owner: "ada", sort: "name", columns: "gpus" },
  ],
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
  it("are what hides jobs, and not the order, the columns or the page", () => {
    expect(isFiltered({ sort: "name", columns: "gpus", group: "owner", cursor: "01a2", owner: ALL })).toBe(false);
    const hiding: JobsView[] = [{ filter: "gpt" }, { state: ["failed"] }, { owner: "ada" }, { node: "gpu-1" }];
    for (const view of [...hiding, { project: "nlp" }, { label: "a=b" }]) expect(isFiltered(view)).toBe(true);
  });

  it("are removed one at a time where a link has set them", () => {
    const view: JobsView = { owner: "ada", node: "gpu-1", label: "a=b", filter: "gpt", cursor: "x".repeat(36) };
    expect(partsSet(view, null).map(({ name, value }) => `${name} ${value}`)).toEqual([
      "owner ada",
      "node gpu-1",
      "label a=b",
    ]);
    for (const { name, without } of partsSet(view, null)) {
      const { cursor: _, [name as "node"]: __, ...kept } = view;
      expect(without).toEqual(kept);
    }
    expect(partsSet({ owner: "ada" }, "ada")).toEqual([]);
    expect(partsSet({ owner: "ben" }, "ada")[0]?.without).toEqual({ owner: ALL });
  });

  it("are named in words", () => {
    expect(filterWords({ filter: "gpus>4", state: ["running", "failed"], owner: "ada", node: "n1" })).toBe(
      "gpus>4, owner ada, node n1, running or failed",
    );
    expect(filterWords({ owner: ALL, sort: "name" })).toBe("");
  });
});
