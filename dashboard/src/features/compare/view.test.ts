import { expect, it } from "vitest";
import { COMPARED_MAX } from "@/lib/compared";
import { readComparison, viewIn, written } from "./view";

it.each([
  [{ jobs: "a,b" }, { jobs: "a,b" }],
  [{ jobs: ["a", "b"] }, { jobs: "a,b" }],
  [{ jobs: "a, b,,a" }, { jobs: "a,b" }],
  [
    { jobs: "a,b", hidden: "b,c", baseline: "b" },
    { jobs: "a,b", hidden: "b", baseline: "b" },
  ],
  [{ jobs: "a", baseline: "c", sort: "size", metric: "", group: "\0", colour: {} }, { jobs: "a" }],
  [{ jobs: 7, hidden: "a" }, { jobs: "7" }],
  [{ jobs: { a: 1 } }, {}],
  [
    { jobs: "a", sort: "-setting:train.optimizer.lr", metric: "val/loss", group: "label:team", colour: "args.lr" },
    { jobs: "a", sort: "-setting:train.optimizer.lr", metric: "val/loss", group: "label:team", colour: "args.lr" },
  ],
  [
    { jobs: "a", scatter: "metric:seconds" },
    { jobs: "a", scatter: "metric:seconds" },
  ],
  [{ jobs: "a", sort: "setting:" }, { jobs: "a" }],
  [
    { jobs: "a", smoothing: 0.6, axis: "fraction", sort: "step" },
    { jobs: "a", smoothing: 0.6, axis: "fraction", sort: "step" },
  ],
  [{ smoothing: 1, axis: "step" }, { axis: "step" }],
  [{ smoothing: "much", axis: 7 }, {}],
  [{}, {}],
])("the address %j reads %j", (search, comparison) => {
  expect(readComparison(search)).toEqual(comparison);
  expect(written(viewIn(readComparison(search) as Record<string, unknown>))).toEqual(written(viewIn(search)));
});

it("compares 200 jobs at most", () => {
  const jobs = Array.from({ length: COMPARED_MAX + 5 }, (_, index) => `job${index}`);
  expect(viewIn({ jobs }).jobs).toEqual(jobs.slice(0, 200));
});
