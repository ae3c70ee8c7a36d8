import { expect, it } from "vitest";
import { randomFrom } from "@/testing/random";
import { type Curve, supersededFrom } from "./curves";
import { linesOf } from "./lines";
import { type Position, reached, readingAt, runsOf } from "./reading";

function curve(attempt: number, steps: readonly number[]): Curve {
  const step = Float64Array.from(steps);
  return {
    ...{ name: "a", unit: "", attempt, count: steps.length, nonFinite: 0, perPlace: 1, span: null },
    ...{ step, time: step, value: step, min: step, max: step },
  };
}

const lines = (jobs: readonly (readonly Curve[])[]) =>
  linesOf(
    jobs.map((curves, slot) => ({ job: `j${slot}`, name: `job ${slot}`, slot, startedAt: null, curves })),
    "step",
    0,
  );
const stepAt = (runs: ReturnType<typeof runsOf>, at: Position | null) => {
  const found = at && readingAt(runs, at);
  return found ? (found.line.curve.step[found.index] as number) : null;
};

it("reads every place of the view once, in order, without what was run again", () => {
  const random = randomFrom(7);
  for (let round = 0; round < 200; round += 1) {
    const curves = [1, 2, 3].map((attempt) => {
      const first = Math.floor(random() * 20);
      return curve(
        attempt,
        Array.from({ length: Math.floor(random() * 20) }, (_, index) => first + index),
      );
    });
    const [from, to] = [Math.floor(random() * 10), 10 + Math.floor(random() * 30)];
    const until = supersededFrom(curves);
    const expected = curves.flatMap(({ step }, which) =>
      [...step].filter((value, index) => index < (until[which] as number) && value >= from && value <= to),
    );
    const runs = runsOf(lines([curves]), from, to, "step");
    const found: (number | null)[] = [];
    let at = reached("Home", false, null, runs);
    for (let count = runs[0]?.count ?? 0; count > 0; count -= 1) {
      found.push(stepAt(runs, at));
      at = reached("ArrowRight", false, at, runs);
    }
    expect(found).toEqual(expected);
  }
});

it("goes by one or ten, to both ends and not beyond, and to the nearest place of the next run", () => {
  const even = Array.from({ length: 50 }, (_, index) => index * 2);
  const runs = runsOf(lines([[curve(1, even)], [curve(1, [1, 33, 70])], []]), 0, 1_000, "step");
  expect(runs.map(({ name, count }) => [name, count])).toEqual([
    ["job 0", 50],
    ["job 1", 3],
  ]);
  const steps = (keys: string) => {
    let at: Position | null = null;
    return keys.split(" ").map((key) => {
      const isFar = key.startsWith("Shift+");
      at = reached(key.replace("Shift+", ""), isFar, at, runs) ?? at;
      return stepAt(runs, at);
    });
  };
  expect(steps("ArrowRight ArrowRight Shift+ArrowRight Shift+ArrowLeft Shift+ArrowLeft")).toEqual([0, 2, 22, 2, 0]);
  expect(steps("ArrowLeft ArrowRight Home End")).toEqual([98, 98, 0, 98]);
  expect(steps("End ArrowDown ArrowLeft ArrowUp ArrowUp")).toEqual([98, 70, 33, 32, 32]);
  expect(steps("ArrowDown ArrowDown ArrowDown")).toEqual([98, 70, 70]);
  expect(reached("x", false, null, runs)).toBeNull();
  expect(reached("ArrowRight", false, null, [])).toBeNull();
  expect(readingAt(runs, { run: 5, place: 0 })).toBeNull();
});
