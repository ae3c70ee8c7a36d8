import { expect, it } from "vitest";
import { readComparison } from "./view";

it.each([
  [{ jobs: "a,b" }, { jobs: "a,b" }],
  [{ jobs: ["a", "b"] }, { jobs: "a,b" }],
  [{ jobs: "a, b,,a" }, { jobs: "a,b" }],
  [
    { jobs: "a,b", hidden: "b,c" },
    { jobs: "a,b", hidden: "b" },
  ],
  [{ jobs: 7, hidden: "a" }, { jobs: "7" }],
  [{ jobs: { a: 1 } }, {}],
  [
    { jobs: "a", smoothing: 0.6, axis: "wall" },
    { jobs: "a", smoothing: 0.6, axis: "wall" },
  ],
  [
    { jobs: "a", axis: "tokens", log: "train/loss" },
    { jobs: "a", axis: "tokens", log: "train/loss" },
  ],
  [{ smoothing: 1, axis: "step" }, { axis: "step" }],
  [{ smoothing: "much", axis: 7 }, {}],
  [{}, {}],
])("the address %j reads %j", (search, comparison) => {
  expect(readComparison(search)).toEqual(comparison);
});

it("compares 20 jobs at most", () => {
  const jobs = Array.from({ length: 25 }, (_, index) => `job${index}`);
  expect(readComparison({ jobs }).jobs?.toString().split(",")).toEqual(jobs.slice(0, 20));
});
