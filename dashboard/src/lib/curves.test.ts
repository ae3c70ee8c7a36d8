import { describe, expect, it } from "vitest";
import { bucketed, type Point, randomPoints } from "@/testing/buckets";
import { randomFrom } from "@/testing/random";
import { coarsened } from "./coarsened";
import { appended, curveOf, figuresOf, firstAtLeast, nearestIndex, refined, supersededFrom, xOf } from "./curves";

describe("curveOf", () => {
  it("reads the names of what is not finite", () => {
    const curve = curveOf(
      bucketed(
        [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1.5].map((value, step) => ({ step, value })),
        10,
      ),
    );
    expect([...curve.value]).toEqual([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1.5]);
  });

  it("puts steps in order, and keeps what belongs together", () => {
    const curve = curveOf(
      bucketed(
        [
          { step: 5, value: 50 },
          { step: 2, value: 20 },
          { step: 9, value: 90 },
        ],
        10,
      ),
    );
    expect([...curve.step]).toEqual([2, 5, 9]);
    expect([...curve.value]).toEqual([20, 50, 90]);
    expect([...curve.time]).toEqual([1_002, 1_005, 1_009]);
  });
});

it("finds places as a search through all of them does", () => {
  const random = randomFrom(3);
  for (let round = 0; round < 300; round += 1) {
    const values = Array.from({ length: Math.floor(random() * 12) }, () => Math.floor(random() * 20)).sort(
      (a, b) => a - b,
    );
    const wanted = Math.floor(random() * 44) / 2 - 1;
    const slow = values.findIndex((value) => value >= wanted);
    expect(firstAtLeast(values, wanted)).toBe(slow === -1 ? values.length : slow);
    const nearest = nearestIndex(values, wanted);
    const least = Math.min(...values.map((value) => Math.abs(value - wanted)));
    if (values.length === 0) expect(nearest).toBe(-1);
    else expect(Math.abs((values[nearest] as number) - wanted)).toBe(least);
  }
});

describe("refined", () => {
  it("has the fine places inside, the coarse outside, each step once, in order, and no value is lost", () => {
    const random = randomFrom(5);
    for (let round = 0; round < 200; round += 1) {
      const points = randomPoints(random, 20 + Math.floor(random() * 200));
      const lastStep = (points.at(-1) as Point).step;
      const from = Math.floor(random() * lastStep);
      const to = from + Math.floor(random() * (lastStep - from + 1));
      const coarse = curveOf(bucketed(points, 10));
      const within = points.filter((point) => point.step >= from && point.step <= to);
      const fine = within.length === 0 ? undefined : curveOf(bucketed(within, 1_000));
      const curve = refined(coarse, fine, from, to);

      const outside = [...coarse.step].filter((step) => step < from || step > to);
      const wanted = fine === undefined ? [...coarse.step] : [...outside, ...within.map((point) => point.step)];
      expect([...curve.step]).toEqual(wanted.sort((a, b) => a - b));
      // Each point of the zoomed range is there as it was reported: no spike, NaN or infinity has gone.
      for (const point of within) expect(curve.value[firstAtLeast(curve.step, point.step)]).toBe(point.value);
      expect([curve.time, curve.value, curve.min, curve.max].map((column) => column.length)).toEqual(
        new Array(4).fill(curve.step.length),
      );
      if (fine !== undefined && curve.span !== null) {
        const at = firstAtLeast(curve.step, fine.step[0] as number);
        expect(curve.span[at]).toBeCloseTo(1 / coarse.perPlace, 9);
      }
    }
  });
});

describe("appended", () => {
  it("is the whole curve where points come in parts", () => {
    const random = randomFrom(15);
    for (let round = 0; round < 100; round += 1) {
      const points = randomPoints(random, 2 + Math.floor(random() * 200));
      const cut = Math.floor(random() * points.length);
      const [first, rest] = [points.slice(0, cut), points.slice(cut)];
      const grown = appended(curveOf(bucketed(first, 1_000)), curveOf(bucketed(rest, 1_000)));
      expect(grown).toEqual(curveOf(bucketed(points, 1_000)));
    }
  });

  it("keeps what the places stand for, behind buckets too, and inside a zoom", () => {
    const points = Array.from({ length: 1_000 }, (_, step) => ({ step, value: step }));
    const coarse = curveOf(bucketed(points.slice(0, 800), 100));
    const grown = appended(
      appended(coarse, curveOf(bucketed(points.slice(800, 900), 1_000))),
      curveOf(bucketed([], 1)),
    );
    expect(grown).toMatchObject({ count: 900, perPlace: 8 });
    expect([...(grown.span ?? [])]).toEqual([...new Array(100).fill(1), ...new Array(100).fill(1 / 8)]);
    const zoomed = refined(grown, curveOf(bucketed(points.slice(80, 160), 1_000)), 80, 159);
    expect(zoomed.span?.length).toBe(zoomed.step.length);
    // Each place stands for the steps since the one before it.
    const wide = [...zoomed.step].map((step, index) => (step - (index === 0 ? -1 : (zoomed.step[index - 1] ?? 0))) / 8);
    expect([...(zoomed.span ?? [])]).toEqual(wide);
  });
});

describe("coarsened", () => {
  it("joins neighbours as the service joins points, and loses no extreme and no mark", () => {
    const random = randomFrom(21);
    for (let round = 0; round < 100; round += 1) {
      const points = randomPoints(random, 50 + Math.floor(random() * 300));
      const cut = Math.floor(random() * points.length);
      const grown = appended(curveOf(bucketed(points.slice(0, cut), 30)), curveOf(bucketed(points.slice(cut), 1_000)));
      const few = coarsened(grown, 20);
      expect(few.step.length).toBeLessThanOrEqual(21);
      expect(few.count).toBe(points.length);
      let from = 0;
      few.step.forEach((step, place) => {
        const to = points.findIndex((point) => point.step === step) + 1;
        const values = points.slice(from, to).map(({ value }) => value);
        const numbers = values.filter((value) => !Number.isNaN(value));
        expect(few.value[place]).toBe(numbers.length < values.length ? Number.NaN : values.at(-1));
        expect(few.min[place]).toBe(numbers.length === 0 ? Number.NaN : Math.min(...numbers));
        expect(few.max[place]).toBe(numbers.length === 0 ? Number.NaN : Math.max(...numbers));
        from = to;
      });
      expect(from).toBe(points.length);
    }
  });

  it("leaves the beginning of a long curve as it is while its end grows", () => {
    const points = Array.from({ length: 2_000 }, (_, step) => ({ step, value: step }));
    let curve = curveOf(bucketed(points.slice(0, 1_000), 50));
    for (let at = 1_000; at < 2_000; at += 50) {
      curve = appended(curve, curveOf(bucketed(points.slice(at, at + 50), 50)));
      if (curve.step.length > 100) curve = coarsened(curve, 50);
    }
    expect(curve.step.filter((step) => step < 1_000).length).toBeGreaterThanOrEqual(20);
    const sizes = [...curve.step].map((_, place) => curve.perPlace * (curve.span?.[place] ?? 1));
    expect(sizes.reduce((sum, size) => sum + size)).toBeCloseTo(2_000);
  });
});

describe("attempts", () => {
  const steps = (from: number, to: number, value: number) =>
    Array.from({ length: to - from }, (_, index) => ({ step: from + index, value }));

  it("marks what a later attempt ran again", () => {
    const random = randomFrom(9);
    for (let round = 0; round < 100; round += 1) {
      const curves = Array.from({ length: 1 + Math.floor(random() * 4) }, (_, index) => {
        const from = Math.floor(random() * 50);
        return curveOf(bucketed(steps(from, from + Math.floor(random() * 60), index), 1_000, index + 1));
      });
      supersededFrom(curves).forEach((found, which) => {
        const curve = curves[which] as (typeof curves)[number];
        const later = curves.filter((other) => other.attempt > curve.attempt).flatMap((other) => [...other.step]);
        const slow = [...curve.step].filter((step) => later.every((other) => step < other)).length;
        expect(found).toBe(slow);
      });
    }
  });

  it("counts neither the last value nor the extremes of what was run again", () => {
    const first = curveOf(bucketed([...steps(0, 5, 3), { step: 5, value: -100 }, { step: 6, value: 100 }], 1_000, 1));
    const second = curveOf(bucketed(steps(5, 9, 2), 1_000, 2));
    expect(figuresOf([first, second])).toMatchObject({ last: 2, lastStep: 8, min: 2, minStep: 5, max: 3, maxStep: 0 });
  });
});

describe("figuresOf", () => {
  it("finds what a search through all points finds, however coarse the buckets", () => {
    const random = randomFrom(13);
    for (let round = 0; round < 100; round += 1) {
      const points = randomPoints(random, 1 + Math.floor(random() * 300));
      const fine = figuresOf([curveOf(bucketed(points, 1_000))]);
      const finite = points.map((point) => point.value).filter(Number.isFinite);
      // Of points, also where a bucket holds many.
      expect(figuresOf([curveOf(bucketed(points, 3))])?.nonFinite).toBe(points.length - finite.length);
      if (finite.length === 0) continue;
      expect(fine?.min).toBe(Math.min(...finite));
      expect(fine?.max).toBe(Math.max(...finite));
      expect(fine?.nonFinite).toBe(points.length - finite.length);
    }
  });

  it("says nothing of no points", () => {
    expect(figuresOf([])).toBeNull();
  });
});

it("lies on the axis by step, by what a step is, by seconds since the job began, or by the clock", () => {
  const curve = curveOf(
    bucketed(
      [
        { step: 3, value: 1 },
        { step: 8, value: 2 },
      ],
      10,
    ),
  );
  expect([...xOf(curve, "step", 1_001)]).toEqual([3, 8]);
  expect([...xOf(curve, "samples", 1_001, 64)]).toEqual([192, 512]);
  expect([...xOf(curve, "relative", 1_001)]).toEqual([2, 7]);
  expect([...xOf(curve, "wall", 1_001)]).toEqual([1_003, 1_008]);
});
