import { describe, expect, it } from "vitest";
import { randomFrom } from "@/testing/random";
import { smooth } from "./smoothing";

/** By its definition: every earlier number counts with w to the power of its distance, and the weights add up to 1. */
function byDefinition(values: number[], weight: number, spans: number[] = values.map(() => 1)): number[] {
  return values.map((value, at) => {
    if (!Number.isFinite(value)) return Number.NaN;
    let sum = 0;
    let weights = 0;
    let distance = 0;
    for (let index = at; index >= 0; index -= 1) {
      const each = values[index] as number;
      if (!Number.isFinite(each)) continue;
      const span = spans[index] as number;
      const share = weight ** distance * (1 - weight ** span);
      sum += share * each;
      weights += share;
      distance += span;
    }
    return sum / weights;
  });
}

function expectClose(found: ArrayLike<number>, wanted: number[]): void {
  expect(found.length).toBe(wanted.length);
  wanted.forEach((value, index) => {
    if (Number.isNaN(value)) expect(found[index]).toBeNaN();
    else expect(found[index]).toBeCloseTo(value, 9);
  });
}

describe("smooth", () => {
  it("is the weighted average of all earlier numbers, whatever the weight and wherever numbers are missing", () => {
    const random = randomFrom(7);
    for (let round = 0; round < 60; round += 1) {
      const values = Array.from({ length: 1 + Math.floor(random() * 80) }, () => {
        const kind = random();
        if (kind < 0.08) return Number.NaN;
        if (kind < 0.12) return Number.POSITIVE_INFINITY;
        if (kind < 0.16) return Number.NEGATIVE_INFINITY;
        return (random() - 0.5) * 10;
      });
      const weight = [0.1, 0.6, 0.9, 0.99, 0.999][round % 5] as number;
      expectClose(smooth(values, weight), byDefinition(values, weight));
    }
  });

  it("fades by distance where values lie unevenly", () => {
    const random = randomFrom(11);
    for (let round = 0; round < 40; round += 1) {
      const values = Array.from({ length: 40 }, () => random() * 5);
      const spans = values.map(() => 0.05 + random() * 2);
      expectClose(smooth(values, 0.9, spans), byDefinition(values, 0.9, spans));
    }
  });

  it("changes nothing at weight 0", () => {
    expect([...smooth([3, Number.NaN, -1, 7], 0)]).toEqual([3, Number.NaN, -1, 7]);
  });

  it("leaves a constant series exactly as it is", () => {
    const constant = new Array(5_000).fill(0.1);
    expect([...smooth(constant, 0.999)]).toEqual(constant);
  });

  it("begins at the first number, not at zero", () => {
    expect(smooth([5, 5.1], 0.999)[0]).toBe(5);
  });
});
