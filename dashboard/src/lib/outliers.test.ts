import { expect, it } from "vitest";
import { bucketed } from "@/testing/buckets";
import { randomFrom } from "@/testing/random";
import { curveOf } from "./curves";
import { outliersIn, within } from "./outliers";

const curve = (values: readonly number[], places = 10_000) =>
  curveOf(
    bucketed(
      values.map((value, step) => ({ step, value })),
      places,
    ),
  );

it.each([1, 7])("finds the spikes that were planted, with %d points a place, and the range of all others", (size) => {
  const random = randomFrom(3);
  for (let round = 0; round < 30; round += 1) {
    const values = Array.from({ length: 700 }, () => 1 + random());
    const spikes = new Set(Array.from({ length: 1 + Math.floor(random() * 5) }, () => Math.floor(random() * 100) * 7));
    for (const at of spikes) values[at] = random() < 0.5 ? 1e4 : -500;
    const found = outliersIn([curve(values, 700 / size)], false);
    expect(found?.count).toBe(spikes.size);
    const [low, high] = found?.range ?? [0, 0];
    expect(low).toBeGreaterThanOrEqual(1);
    expect(high).toBeLessThanOrEqual(2);
  }
});

it("finds none in a loss that falls, in noise, and in few points", () => {
  const random = randomFrom(4);
  expect(outliersIn([curve(Array.from({ length: 300 }, (_, step) => 10 / Math.sqrt(step + 1)))], true)).toBeNull();
  expect(outliersIn([curve(Array.from({ length: 300 }, (_, step) => 10 - step / 30))], false)).toBeNull();
  expect(outliersIn([curve(Array.from({ length: 300 }, () => random()))], false)).toBeNull();
  expect(outliersIn([curve([1, 2, 1000])], false)).toBeNull();
  expect(outliersIn([curve(Array.from({ length: 300 }, () => Number.NaN))], false)).toBeNull();
});

it.each([1, 7, 100])("finds none in a curve that begins far out and comes down, with %d points a place", (size) => {
  const random = randomFrom(5);
  const falls = (of: (step: number) => number) =>
    curve(
      Array.from({ length: 5_000 }, (_, step) => of(step)),
      5_000 / size,
    );
  for (const start of [
    (step: number) => 1 / (step + 1),
    (step: number) => 7 / (step + 3),
    (step: number) => 1 + 9 * 0.99 ** step,
    (step: number) => 3 + 8 * 0.99 ** step + 0.2 * random(),
    (step: number) => -1 / (step + 1),
  ])
    expect(outliersIn([falls(start)], false)).toBeNull();
  const spiked = falls((step) => (step === 4_000 ? 1e4 : 1 + 9 * 0.99 ** step));
  expect(outliersIn([spiked], false)?.count).toBe(1);
});

it("sees a first value from which the curve jumps", () => {
  const values = Array.from({ length: 300 }, (_, step) => (step < 2 ? 1e4 : 5 - step / 300));
  expect(outliersIn([curve(values)], false)?.count).toBe(2);
});

it("sees a spike over a constant, and does not take NaN and Infinity for one", () => {
  const values = Array.from({ length: 100 }, () => 5);
  values[50] = 1e6;
  values[60] = Number.NaN;
  values[70] = Number.POSITIVE_INFINITY;
  expect(outliersIn([curve(values)], false)).toEqual({ range: [5, 5], count: 1 });
});

it("takes the part of an extent that is within, unless all of it is beyond", () => {
  expect(within([0, 100], [1, 2])).toEqual([1, 2]);
  expect(within([50, 100], [1, 2])).toEqual([50, 100]);
  expect(within([0, 100], null)).toEqual([0, 100]);
  expect(within([Number.NaN, Number.NaN], [1, 2])).toEqual([Number.NaN, Number.NaN]);
});
