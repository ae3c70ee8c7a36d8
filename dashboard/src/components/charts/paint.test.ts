import { describe, expect, it } from "vitest";
import { curveOf } from "@/lib/curves";
import { linesOf } from "@/lib/lines";
import { valueRange } from "@/lib/ticks";
import { bucketed, type Point, randomPoints } from "@/testing/buckets";
import { draw, line, type Place, TALL, WIDE } from "@/testing/canvas";
import { randomFrom } from "@/testing/random";

describe("whatever the zoom and however coarse the buckets", () => {
  const random = randomFrom(31);
  const rounds = Array.from({ length: 120 }, () => {
    const points = randomPoints(random, 10 + Math.floor(random() * 400));
    const last = (points[points.length - 1] as Point).step;
    const from = random() * last * 0.7;
    const places = 5 + Math.floor(random() * 500);
    return { points, places, view: [from, from + last * (0.1 + random() * 0.3)] as Place };
  });
  // A bucket is drawn where its last step is: what is in it is seen that far away from its own place, at most.
  const reachOf = ({ points, places, view }: (typeof rounds)[number]) => {
    const size = Math.max(1, Math.ceil(points.length / places));
    return (size * 3 * WIDE) / (view[1] - view[0]) + 8;
  };
  const seen = ({ points, view }: (typeof rounds)[number]) =>
    points.filter(({ step }) => step >= view[0] && step <= view[1]);
  const xOf = (step: number, [from, to]: Place) => ((step - from) / (to - from)) * WIDE;

  it("a spike is reached by the line or by its band", () => {
    for (const round of rounds) {
      const finite = seen(round).filter(({ value }) => Number.isFinite(value));
      if (finite.length === 0) continue;
      const drawn = draw(line(round.points, round.places), round.view, [-6, 6]);
      // Filled areas are too faint to show what is as narrow as a hair: a line or a bar goes there.
      const bars = drawn.fills.filter(({ path, alpha }) => path.length === 2 && alpha >= 0.5);
      const strokes = drawn.strokes.filter(({ alpha }) => alpha >= 0.5);
      const places = [...strokes.flatMap(({ path }) => path.flat()), ...bars.flatMap(({ path }) => path)];
      for (const pick of [Math.min, Math.max]) {
        const extreme = pick(...finite.map(({ value }) => value));
        const at = finite.find(({ value }) => value === extreme) as Point;
        const y = TALL - ((extreme + 6) / 12) * TALL;
        const isThere = places.some(
          ([x, top]) =>
            Math.abs(x - xOf(at.step, round.view)) <= reachOf(round) &&
            // A bucket with an infinity reaches the edge, and so beyond the spike.
            (Math.abs(top - y) < 0.5 || (pick === Math.max ? top <= 0.5 && y >= 0 : top >= TALL - 0.5)),
        );
        expect(isThere).toBe(true);
      }
    }
  });

  it("NaN, Infinity and -Infinity have their marks", () => {
    for (const round of rounds) {
      const drawn = draw(line(round.points, round.places), round.view, [-6, 6]);
      const marks = drawn.fills.filter(({ path, alpha }) => alpha === 1 && (path.length === 3 || path.length === 4));
      const centres = marks.map(({ path }) => ({
        corners: path.length,
        x: (Math.min(...path.map(([x]) => x)) + Math.max(...path.map(([x]) => x))) / 2,
        isHigh: Math.max(...path.map(([, y]) => y)) < TALL / 2,
      }));
      for (const { step, value } of seen(round)) {
        if (Number.isFinite(value)) continue;
        const x = xOf(step, round.view);
        const isThere = centres.some(
          (mark) =>
            Math.abs(mark.x - x) <= reachOf(round) &&
            mark.corners === (Number.isNaN(value) ? 4 : 3) &&
            mark.isHigh === (value === Number.POSITIVE_INFINITY),
        );
        expect(isThere).toBe(true);
      }
    }
  });

  it("no line goes back", () => {
    for (const round of rounds)
      for (const { path } of draw(line(round.points, round.places), round.view, [-6, 6]).strokes)
        for (const piece of path.filter((each) => each.length > 4))
          expect(piece.every(([x], index) => index === 0 || x >= (piece[index - 1] as Place)[0])).toBe(true);
  });
});

it("shows a spike where several buckets share a column of pixels", () => {
  for (const at of [5, 1_777, 2_022, 3_990])
    for (const value of [9, -9]) {
      const points = Array.from({ length: 4_000 }, (_, step) => ({ step, value: step === at ? value : 0 }));
      const drawn = draw(line(points, 1_000), [0, 3_999], [-10, 10]);
      const y = TALL - ((value + 10) / 20) * TALL;
      const places = drawn.strokes.filter(({ alpha }) => alpha >= 0.5).flatMap(({ path }) => path.flat());
      expect(places.some(([x, top]) => Math.abs(x - at / 10) < 1.5 && Math.abs(top - y) < 0.5)).toBe(true);
    }
});

it("draws a restarted job as one line per attempt, what was run again faintly, and where the attempt begins", () => {
  const steps = (from: number, to: number) =>
    Array.from({ length: to - from }, (_, index) => ({ step: from + index, value: 1 }));
  const lines = linesOf(
    [
      {
        job: "a",
        name: "a",
        slot: 0,
        startedAt: null,
        curves: [curveOf(bucketed(steps(0, 60), 1_000, 1)), curveOf(bucketed(steps(40, 100), 1_000, 2))],
      },
    ],
    "step",
    0,
  );
  const pieces = draw(lines, [0, 100], valueRange(1, 1, false)).strokes.flatMap(({ path, alpha }) =>
    path.map((piece) => [(piece[0] as Place)[0] / 4, (piece[piece.length - 1] as Place)[0] / 4, alpha]),
  );
  expect(pieces).toContainEqual([0, 39, 1]);
  expect(pieces).toContainEqual([39, 59, 0.32]);
  expect(pieces).toContainEqual([40, 99, 1]);
  expect(pieces).toContainEqual([40, 40, 1]);
});

it("leaves gaps on a logarithmic axis for what is not above zero", () => {
  const points = [1, 10, 0, -5, 10, 100].map((value, step) => ({ step, value }));
  const [curve] = draw(line(points, 100), [0, 5], [1, 100], true).strokes;
  expect(curve?.path).toEqual([
    [
      [0, TALL],
      [80, TALL / 2],
    ],
    [
      [320, TALL / 2],
      [400, 0],
    ],
  ]);
});
