import { describe, expect, it } from "vitest";
import { type Box, bestOf, drawing } from "./sparkline";

const BOX: Box = { width: 120, height: 40, margin: 2 };
const INNER = BOX.height - 2 * BOX.margin;

/** Pieces of a path: each the points that one pen stroke visits. */
function strokes(path: string): [number, number][][] {
  return path
    .split("M")
    .slice(1)
    .map((piece) =>
      piece
        .replace("h0", "")
        .split("L")
        .map((pair) => pair.split(" ").map(Number) as [number, number]),
    );
}

function bars(path: string): { x: number; from: number; to: number }[] {
  return [...path.matchAll(/M([\d.]+) ([\d.]+)V([\d.]+)/g)].map(([, x, from, to]) => ({
    x: Number(x),
    from: Number(from),
    to: Number(to),
  }));
}

function single(values: (number | string)[]) {
  return { step: values.map((_, place) => place), value: values, min: values, max: values };
}

/** Reproducible, and none of the code's own arithmetic. */
function dice(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return state / 2_147_483_648;
  };
}

describe("a sparkline", () => {
  it("keeps a spike that is inside of one bucket", () => {
    const points = { step: [9, 19, 29], value: [1, 1, 1], min: [1, 1, 1], max: [1, 50, 1] };
    const drawn = drawing(points, BOX);
    expect(drawn.range).toEqual({ low: 1, high: 50 });
    expect(bars(drawn.bars)[1]).toEqual({ x: 60, from: BOX.height - BOX.margin, to: BOX.margin });
  });

  it("breaks at NaN and marks it there", () => {
    const drawn = drawing(single([1, 2, "NaN", 4, 5]), BOX);
    expect(strokes(drawn.line).map((stroke) => stroke.length)).toEqual([2, 2]);
    expect(drawn.marks).toEqual([{ x: 60, kind: "nan" }]);
  });

  it("shows the numbers of a bucket that has a NaN too", () => {
    const drawn = drawing({ step: [0, 1], value: [1, "NaN"], min: [1, 0], max: [1, 3] }, BOX);
    expect(bars(drawn.bars)).toHaveLength(2);
    expect(drawn.range).toEqual({ low: 0, high: 3 });
    expect(drawn.marks).toHaveLength(1);
  });

  it("marks infinities without letting them flatten the rest", () => {
    const drawn = drawing(
      { step: [0, 1, 2], value: [1, 2, 3], min: [1, "-Infinity", 3], max: [1, 2, "Infinity"] },
      BOX,
    );
    expect(drawn.marks.map((mark) => mark.kind)).toEqual(["-infinity", "infinity"]);
    expect(drawn.range).toEqual({ low: 1, high: 3 });
    expect(bars(drawn.bars)).toHaveLength(3);
  });

  it("draws a value between two gaps as a dot", () => {
    expect(drawing(single(["NaN", 1, "NaN"]), BOX).line).toBe("M60 20h0");
  });

  it("draws one point in the middle, and nothing where nothing is finite", () => {
    expect(drawing(single([7]), BOX).line).toBe("M60 20h0");
    expect(drawing(single([]), BOX)).toEqual({ line: "", bars: "", marks: [], range: null });
    const lost = drawing(single(["NaN", "NaN"]), BOX);
    expect([lost.line, lost.bars, lost.range, lost.marks.length]).toEqual(["", "", null, 2]);
  });

  it("holds for the largest numbers", () => {
    const drawn = drawing(single([-1.7e308, 1.7e308]), BOX);
    expect(strokes(drawn.line)).toEqual([
      [
        [2, 38],
        [118, 2],
      ],
    ]);
  });

  it("agrees with a drawing made bucket by bucket, whatever is in the series", () => {
    for (let seed = 1; seed <= 200; seed += 1) {
      const next = dice(seed);
      const odd = ["NaN", "Infinity", "-Infinity"];
      const count = 1 + Math.floor(next() * 30);
      const points = {
        step: [] as number[],
        value: [] as (number | string)[],
        min: [] as (number | string)[],
        max: [] as (number | string)[],
      };
      for (let place = 0; place < count; place += 1) {
        points.step.push((points.step.at(-1) ?? 0) + 1 + Math.floor(next() * 9));
        const value = next() < 0.2 ? (odd[Math.floor(next() * 3)] as string) : next() * 20 - 10;
        points.value.push(value);
        points.min.push(typeof value === "number" ? value - next() : value);
        points.max.push(typeof value === "number" ? value + next() : value);
      }
      const drawn = drawing(points, BOX);
      const numbers = [...points.min, ...points.max].filter((one) => typeof one === "number");
      const high = Math.max(...numbers);
      const scale = high - Math.min(...numbers);
      const at = (value: number) => (scale === 0 ? 20 : BOX.margin + ((high - value) / scale) * INNER);
      const expected = points.min.flatMap((low, place) => {
        const top = points.max[place];
        return typeof low === "number" && typeof top === "number" ? [[at(low), at(top)]] : [];
      });
      const seen = bars(drawn.bars);
      expect(seen).toHaveLength(expected.length);
      seen.forEach((bar, place) => {
        expect(Math.abs(bar.from - (expected[place]?.[0] ?? NaN))).toBeLessThan(0.06);
        expect(Math.abs(bar.to - (expected[place]?.[1] ?? NaN))).toBeLessThan(0.06);
      });
      const runs = points.value
        .map((one) => (typeof one === "number" ? "x" : " "))
        .join("")
        .split(/ +/)
        .filter(Boolean);
      expect(strokes(drawn.line).map((stroke) => stroke.length)).toEqual(runs.map((run) => run.length));
      expect(drawn.marks).toHaveLength(points.value.filter((one) => typeof one === "string").length);
    }
  });
});

it.each([
  ["lower", [3, 1, "NaN"], [4, 5, 6], 1],
  ["higher", [3, 1, 2], [4, "Infinity", 5], 5],
  ["none", [1], [2], null],
  ["lower", ["NaN"], ["NaN"], null],
] as const)("takes as best of %s values the extreme that is finite", (direction, min, max, best) => {
  expect(bestOf({ direction, min: [...min], max: [...max] })).toBe(best);
});
