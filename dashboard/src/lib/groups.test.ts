import { describe, expect, it } from "vitest";
import { aLine } from "@/testing/lines";
import { randomFrom } from "@/testing/random";
import { linesOfGroups, meanOf, type Path, pathOf } from "./groups";

function randomPath(random: () => number): Path {
  const path: Path = { x: [], y: [], step: [], elapsed: [] };
  let x = Math.floor(random() * 20);
  for (let count = Math.floor(random() * 30); count > 0; count -= 1) {
    path.x.push(x);
    path.y.push(random() * 10 - 5);
    path.step.push(x);
    path.elapsed.push(2 * x);
    x += 1 + Math.floor(random() * 4);
  }
  return path;
}

/** The value of a path at a place by looking at each pair of neighbours; null outside. */
function valueAt({ x, y }: Path, at: number): number | null {
  for (let index = 0; index < x.length; index += 1) {
    if (x[index] === at) return y[index] as number;
    const [left, right] = [x[index] as number, x[index + 1]];
    if (right !== undefined && left < at && at < right)
      return (y[index] as number) + (((y[index + 1] as number) - (y[index] as number)) * (at - left)) / (right - left);
  }
  return null;
}

describe("the mean of paths", () => {
  it.each(Array.from({ length: 60 }, (_, seed) => seed))(
    "agrees with a plain loop over the paths that cover each place: %d",
    (seed) => {
      const random = randomFrom(seed);
      const paths = Array.from({ length: 1 + Math.floor(random() * 6) }, () => randomPath(random));
      const placesMax = random() < 0.5 ? 400 : 2 + Math.floor(random() * 20);
      const found = meanOf(paths, placesMax);
      const places = [...new Set(paths.flatMap(({ x }) => x))].sort((a, b) => a - b);
      if (places.length <= placesMax) expect([...found.x]).toEqual(places);
      else expect(found.x.length).toBeLessThanOrEqual(placesMax);
      found.x.forEach((at, place) => {
        const values = paths.map((path) => valueAt(path, at)).filter((value) => value !== null);
        expect(values.length).toBeGreaterThan(0);
        expect(found.mean[place]).toBeCloseTo(values.reduce((sum, value) => sum + value, 0) / values.length, 9);
        expect(found.low[place]).toBeCloseTo(Math.min(...values), 9);
        expect(found.high[place]).toBeCloseTo(Math.max(...values), 9);
        expect(found.step[place]).toBeCloseTo(at, 9);
        expect(found.elapsed[place]).toBeCloseTo(2 * at, 9);
      });
    },
  );
});

it("makes a path of what each attempt kept, without what is no number", () => {
  const first = aLine("a", [1, 2, 3, 4], [9, Number.NaN, 7, 6], { end: 3 });
  const second = aLine("a", [4, 5], [5, Number.POSITIVE_INFINITY], { attempt: 2 });
  expect(pathOf([second, first])).toMatchObject({ x: [1, 3, 4], y: [9, 7, 5] });
});

it("draws a line for each group with points, and leaves other jobs alone", () => {
  const lines = [aLine("a", [0, 2], [1, 3]), aLine("b", [1, 2], [4, 5]), aLine("c", [0], [7])];
  const groups = [
    { key: "g", name: "lr 0.1", slot: 3, jobs: ["a", "b"] },
    { key: "empty", name: "lr 1", slot: 4, jobs: ["d"] },
  ];
  const [other, mean, ...rest] = linesOfGroups(lines, groups);
  expect(other).toBe(lines[2]);
  expect(rest).toEqual([]);
  expect(mean).toMatchObject({ job: "g", name: "lr 0.1 (mean of 2)", slot: 3, isMean: true, end: 3 });
  expect([...(mean?.curve.value ?? [])]).toEqual([1, 3, 4]);
  expect([...(mean?.curve.min ?? [])]).toEqual([1, 2, 3]);
  expect([...(mean?.curve.max ?? [])]).toEqual([1, 4, 5]);
});
