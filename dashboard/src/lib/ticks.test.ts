import { describe, expect, it } from "vitest";
import { randomFrom } from "@/testing/random";
import { number } from "./format";
import { limitsOf, linearTicks, logTicks, roundStep, tickLabels, valueRange } from "./ticks";

it("never makes more ticks than asked for, all within bounds, evenly apart", () => {
  const random = randomFrom(2);
  for (let round = 0; round < 500; round += 1) {
    const size = 10 ** (random() * 14 - 6);
    const min = (random() - 0.5) * size;
    const max = min + random() * size + size * 1e-6;
    const most = 2 + Math.floor(random() * 8);
    for (const measure of ["number", "bytes", "duration"] as const) {
      const ticks = linearTicks(min, max, most, measure);
      // Sizes that differ by little have steps of another kind.
      const step = measure === "bytes" ? Number(ticks[1]) - Number(ticks[0]) || 1 : roundStep(max - min, most, measure);
      expect(ticks.length).toBeLessThanOrEqual(most + 1);
      for (const tick of ticks) {
        expect(tick).toBeGreaterThanOrEqual(min - step * 1e-6);
        expect(tick).toBeLessThanOrEqual(max + step * 1e-6);
        const count = (measure === "bytes" ? tick - Number(ticks[0]) : tick) / step;
        expect(Math.abs(count - Math.round(count))).toBeLessThan(1e-4);
      }
    }
  }
});

it("makes three ticks at least where they are asked for, in steps of 1, 2 or 5, or of a power of two of a unit", () => {
  const random = randomFrom(5);
  for (let round = 0; round < 2_000; round += 1) {
    const size = 10 ** (random() * 14 - 2);
    const min = (random() - 0.5) * size;
    const max = min + random() * size + size * 1e-3;
    const most = 3 + Math.floor(random() * 7);
    for (const measure of ["number", "bytes", "duration", "count"] as const) {
      if (measure === "count" && max - min < 4) continue;
      const ticks = linearTicks(min, max, most, measure, 3);
      expect(ticks.length).toBeGreaterThanOrEqual(3);
      expect(ticks.length).toBeLessThanOrEqual(3 * most);
      const [first, second] = ticks as [number, number];
      const step = second - first;
      if (measure === "number") expect(["1", "2", "5"]).toContain(step.toExponential(3)[0]);
      if (measure === "bytes" && step >= 1) {
        const lead = step / 2 ** Math.floor(Math.log2(step) + 1e-9);
        const inUnits = [1, 2, 3, 4, 5].map((power) => (step / 1_024 ** power).toExponential(3)[0] ?? "");
        expect(Math.abs(lead - 1) < 1e-6 || inUnits.some((digit) => ["1", "2", "5"].includes(digit))).toBe(true);
      }
      if (measure === "count") expect(Number.isInteger(step)).toBe(true);
    }
  }
});

it.each([
  [0, 10, 5, "number", [0, 2, 4, 6, 8, 10]],
  [0.1, 0.35, 3, "number", [0.1, 0.2, 0.3]],
  [0, 3_600, 4, "duration", [0, 900, 1_800, 2_700, 3_600]],
  [0, 4 * 1_024 ** 3, 4, "bytes", [0, 1, 2, 3, 4].map((count) => count * 1_024 ** 3)],
] as const)("ticks from %d to %d", (min, max, most, measure, ticks) => {
  expect(linearTicks(min, max, most, measure)).toEqual(ticks);
});

describe("logTicks", () => {
  it.each([
    [0.001, 1_000, 10, [0.001, 0.01, 0.1, 1, 10, 100, 1_000]],
    [1e-8, 1e8, 5, [1e-8, 1e-4, 1, 1e4, 1e8]],
    [1, 40, 5, [1, 2, 5, 10, 20]],
    [2, 3, 5, [2, 2.2, 2.4, 2.6, 2.8, 3]],
  ])("from %d to %d", (min, max, most, ticks) => {
    expect(logTicks(min, max, most)).toEqual(ticks);
  });

  it("stays within bounds and is never empty, however narrow the range", () => {
    const random = randomFrom(4);
    for (let round = 0; round < 500; round += 1) {
      const [min, max] = valueRange(10 ** (random() * 12 - 6), 10 ** (random() * 12 - 6), true);
      if (!(max > min)) continue;
      const ticks = logTicks(min, max, 6);
      expect(ticks.length).toBeGreaterThan(0);
      for (const tick of ticks) expect(tick >= min * 0.999_999 && tick <= max * 1.000_001).toBe(true);
    }
  });
});

describe("tickLabels", () => {
  it.each([
    [[0, 0.1, 0.2], "number", ["0", "0.1", "0.2"]],
    [[4.6, 4.8, 5], "number", ["4.6", "4.8", "5.0"]],
    [[0, 50_000, 100_000], "number", ["0", "50 k", "100 k"]],
    [[1e-4, 2e-4], "number", ["1e-4", "2e-4"]],
    [[0.001, 1, 1_000], "number", ["0.001", "1", "1000"]],
    [[1e-8, 1e-4, 1], "number", ["1e-8", "1e-4", "1e0"]],
    [[0, 1_024 ** 3, 2 * 1_024 ** 3], "bytes", ["0", "1 GiB", "2 GiB"]],
    [[30, 60, 90, 3_600, 5_400, 172_800], "duration", ["30 s", "1 min", "1:30 min", "1 h", "1:30 h", "2 d"]],
  ] as const)("of %j", (ticks, measure, labels) => {
    expect(tickLabels(ticks, measure)).toEqual(labels);
  });

  it("of sizes are short, in one unit, and exactly where they say", () => {
    const random = randomFrom(8);
    const units: Record<string, number> = { B: 0, KiB: 1, MiB: 2, GiB: 3, TiB: 4, PiB: 5 };
    for (let round = 0; round < 500; round += 1) {
      const size = 2 ** (8 + random() * 36);
      const min = random() < 0.3 ? 0 : random() * size;
      const ticks = linearTicks(min, min + size * (0.02 + random()), 3 + Math.floor(random() * 6), "bytes");
      const labels = tickLabels(ticks, "bytes");
      const signs = new Set<string>();
      labels.forEach((label, index) => {
        const [, digits = "", decimals = "", unit = "B"] = /^(\d+(?:\.(\d+))?)(?: (\w+))?$/.exec(label) ?? [label];
        expect(decimals.length, label).toBeLessThanOrEqual(4);
        expect(Number(digits) * 1_024 ** (units[unit] ?? Number.NaN), label).toBe(ticks[index]);
        if (Number(digits) !== 0) signs.add(unit);
      });
      expect(signs.size).toBeLessThanOrEqual(1);
      expect(new Set(labels).size).toBe(labels.length);
    }
  });

  it.each([
    [3, ["0", "0.5 GiB", "1.0 GiB", "1.5 GiB", "2.0 GiB", "2.5 GiB", "3.0 GiB"]],
    [5, ["0", "1 GiB", "2 GiB", "3 GiB", "4 GiB", "5 GiB"]],
  ])("of a memory chart of 0 to %d GiB are round", (gib, labels) => {
    expect(tickLabels(linearTicks(0, gib * 1_024 ** 3, 6, "bytes"), "bytes")).toEqual(labels);
  });

  it("tells neighbours apart", () => {
    const random = randomFrom(6);
    for (let round = 0; round < 300; round += 1) {
      const size = 10 ** (random() * 12 - 5);
      const min = random() < 0.5 ? 0 : random() * size;
      const ticks = linearTicks(min, min + size * (0.05 + random()), 6);
      expect(new Set(tickLabels(ticks)).size).toBe(ticks.length);
    }
  });
});

it("writes sizes that differ by little in the unit of the figures beside them", () => {
  const [low, high] = [65.2, 65.4].map((gib) => gib * 1_024 ** 3) as [number, number];
  expect(tickLabels(linearTicks(low, high, 4, "bytes"), "bytes")).toEqual([
    "65.20 GiB",
    "65.25 GiB",
    "65.30 GiB",
    "65.35 GiB",
    "65.40 GiB",
  ]);
});

it("writes large values as the figures beside them do", () => {
  expect([tickLabels([-2e9, -1e9]), [-2e9, -1e9].map(number)]).toEqual([
    ["-2 G", "-1 G"],
    ["-2 G", "-1 G"],
  ]);
  expect([tickLabels([1e-7, 2e-7]), [1e-7, 2e-7].map(number)]).toEqual([
    ["1e-7", "2e-7"],
    ["1e-7", "2e-7"],
  ]);
});

describe("valueRange", () => {
  it("ends at what a unit can be, unless values lie beyond it", () => {
    expect(valueRange(2, 99, false, limitsOf([0, 100]))).toEqual([0, 100]);
    expect(valueRange(50, 60, false, limitsOf([0, 100]))).toEqual([49.5, 60.5]);
    expect(valueRange(0, 240, false, limitsOf([0, 100]))).toEqual([0, 252]);
    expect(valueRange(100, 100, false, limitsOf([0, 100]))).toEqual([95, 100]);
  });

  it("holds the values, with air, and is never empty", () => {
    for (const isLog of [false, true])
      for (const [min, max] of [
        [1, 2],
        [3, 3],
        [1e-9, 1e9],
        [5e3, 5e3],
      ] as const) {
        const [low, high] = valueRange(min, max, isLog);
        expect(low).toBeLessThan(min);
        expect(high).toBeGreaterThan(max);
        if (isLog) expect(low).toBeGreaterThan(0);
      }
  });

  it("has bounds also of zero, of nothing, and of nothing above zero on a logarithmic axis", () => {
    expect(valueRange(0, 0, false)).toEqual([-1, 1]);
    expect(valueRange(Number.NaN, Number.NaN, false)).toEqual([0, 1]);
    expect(valueRange(-5, -1, true)).toEqual([0.1, 1]);
    expect(valueRange(-5, 10, true)[0]).toBeGreaterThan(0);
  });
});
