import { describe, expect, it } from "vitest";
import { randomFrom } from "@/testing/random";
import type { Curve } from "./curves";
import { extentOfX, extentOfY, isNothingBetween, type Line, linesOf, readingsAt, stepsBetween, window } from "./lines";

function curve(step: number[], value: number[] = step, attempt = 1): Curve {
  const column = Float64Array.from(value);
  const name = "train/loss";
  const time = Float64Array.from(step, (each) => 1_000 + each * 2 + attempt * 500);
  return {
    name,
    unit: "",
    attempt,
    count: step.length,
    step: Float64Array.from(step),
    time,
    value: column,
    min: column,
    max: column,
    span: null,
    nonFinite: 0,
    perPlace: 1,
  };
}

function one(job: string, ...curves: Curve[]): Line[] {
  return linesOf([{ job, name: job, slot: 0, startedAt: null, curves }], "step", 0);
}

function randomLines(random: () => number): Line[] {
  return Array.from({ length: 1 + Math.floor(random() * 4) }, (_, index) => {
    const steps = Array.from({ length: Math.floor(random() * 20) }, () => Math.floor(random() * 60)).sort(
      (a, b) => a - b,
    );
    const values = steps.map(() =>
      random() < 0.2 ? ([Number.NaN, Number.POSITIVE_INFINITY][Math.floor(random() * 2)] as number) : random() * 10 - 4,
    );
    return one(`job${index}`, curve(steps, values));
  }).flat();
}

it("sees on the value axis exactly the finite values between the bounds", () => {
  const random = randomFrom(21);
  for (let round = 0; round < 300; round += 1) {
    const lines = randomLines(random);
    const from = Math.floor(random() * 60);
    const to = from + Math.floor(random() * 30);
    const isLog = random() < 0.5;
    const seen = lines.flatMap((line) =>
      [...line.curve.value].filter((value, at) => {
        const x = line.x[at] as number;
        return x >= from && x <= to && Number.isFinite(value) && (!isLog || value > 0);
      }),
    );
    if (seen.length > 0) expect(extentOfY(lines, from, to, isLog)).toEqual([Math.min(...seen), Math.max(...seen)]);
  }
});

it("draws every place between the bounds, and one more on each side", () => {
  const random = randomFrom(22);
  for (let round = 0; round < 300; round += 1) {
    const x = Array.from({ length: Math.floor(random() * 15) }, () => Math.floor(random() * 20)).sort((a, b) => a - b);
    const from = random() * 22 - 1;
    const to = from + random() * 10;
    const [first, last] = window(x, from, to);
    x.forEach((value, index) => {
      if (value >= from && value <= to) expect(index >= first && index < last).toBe(true);
    });
    if (first > 0) expect(x[first]).toBeLessThan(from);
    if (last < x.length) expect(x[last - 1]).toBeGreaterThan(to);
  }
});

it("knows where there is nothing to see", () => {
  const random = randomFrom(24);
  for (let round = 0; round < 300; round += 1) {
    const lines = randomLines(random);
    const from = random() * 80 - 10;
    const to = from + random() * 20;
    const isSeen = lines.some(({ x }) => {
      const inside = [...x].some((value) => value >= from && value <= to);
      return inside || ([...x].some((value) => value < from) && [...x].some((value) => value > to));
    });
    expect(isNothingBetween(lines, from, to)).toBe(!isSeen);
  }
});

describe("readingsAt", () => {
  it("finds each job's nearest place, as a search through all of them does", () => {
    const random = randomFrom(23);
    for (let round = 0; round < 200; round += 1) {
      const lines = randomLines(random).filter((line) => line.x.length > 0);
      const x = random() * 70 - 5;
      const reach = 3;
      const found = new Map(readingsAt(lines, x, reach, "step").map((reading) => [reading.line.job, reading]));
      for (const line of lines) {
        const least = Math.min(...[...line.x].map((value) => Math.abs(value - x)));
        const isNear = x >= Math.min(...line.x) - reach && x <= Math.max(...line.x) + reach;
        const reading = found.get(line.job);
        expect(reading !== undefined).toBe(isNear);
        if (reading !== undefined) expect(Math.abs((line.x[reading.index] as number) - x)).toBe(least);
      }
    }
  });

  it("reads the later attempt where steps were run again", () => {
    const lines = one("a", curve([0, 1, 2, 3, 4], [9, 9, 9, 9, 9], 1), curve([2, 3], [5, 5], 2));
    const [reading] = readingsAt(lines, 4, 10, "step");
    expect(reading?.line.curve.attempt).toBe(2);
    expect(reading?.index).toBe(1);
  });

  it("reads both attempts along time, where they lie apart", () => {
    const curves = [curve([0, 1, 2, 3, 4], [9, 9, 9, 9, 9], 1), curve([0, 1, 2], [5, 5, 5], 2)];
    const lines = linesOf([{ job: "a", name: "a", slot: 0, startedAt: null, curves }], "wall", 0);
    const at = (x: number) => {
      const [reading] = readingsAt(lines, x, 10, "wall");
      return reading && [reading.line.curve.attempt, reading.index];
    };
    expect(at(1_506)).toEqual([1, 3]);
    expect(at(2_002)).toEqual([2, 1]);
    expect(at(1_700)).toBeUndefined();
  });
});

describe("linesOf", () => {
  it("keeps attempts apart, so that steps never go back within a line", () => {
    const lines = one("a", curve([0, 10, 20], [1, 1, 1], 1), curve([10, 20, 30], [2, 2, 2], 2));
    expect(lines.map((line) => [[...line.x], line.end, line.isRestart])).toEqual([
      [[0, 10, 20], 1, false],
      [[10, 20, 30], 3, true],
    ]);
  });

  it("counts relative time from the start of the job, or from its first point where that was earlier or is unknown", () => {
    const of = (startedAt: number | null) =>
      linesOf([{ job: "a", name: "a", slot: 0, startedAt, curves: [curve([0, 5])] }], "relative", 0)[0]?.x[0];
    expect(of(1_400)).toBe(100);
    expect(of(null)).toBe(0);
    expect(of(9_999)).toBe(0);
  });

  it("counts samples by what a step of the job is", () => {
    const jobs = [2, 3].map((samples) => ({
      job: `of ${samples}`,
      name: "a",
      slot: 0,
      startedAt: null,
      perStep: { samples },
      curves: [curve([0, 5])],
    }));
    expect(linesOf(jobs, "samples", 0).map(({ x }) => [...x])).toEqual([
      [0, 10],
      [0, 15],
    ]);
  });

  it("lets a clock that was set back stand still", () => {
    const odd = { ...curve([0, 1, 2, 3]), time: Float64Array.from([10, 20, 5, 30]) };
    expect([
      ...(linesOf([{ job: "a", name: "a", slot: 0, startedAt: null, curves: [odd] }], "wall", 0)[0] as Line).x,
    ]).toEqual([10, 20, 20, 30]);
  });
});

it("knows how far the axis goes, also for one place or none", () => {
  expect(extentOfX([...one("a", curve([3, 9])), ...one("b", curve([1, 4]))])).toEqual([1, 9]);
  expect(extentOfX(one("a", curve([4])))).toEqual([3.5, 4.5]);
  expect(extentOfX([])).toBeNull();
});

it("knows which steps a stretch of time holds", () => {
  const lines = linesOf(
    [{ job: "a", name: "a", slot: 0, startedAt: 1_500, curves: [curve([0, 10, 20, 30, 40])] }],
    "relative",
    0,
  );
  expect(stepsBetween(lines, 35, 65)).toEqual({ from: 10, to: 40 });
  expect(stepsBetween([], 0, 1)).toBeNull();
});
