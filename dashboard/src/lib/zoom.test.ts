import { expect, it } from "vitest";
import { randomFrom } from "@/testing/random";
import { moved, onOtherAxis, stepsIn, widened } from "./zoom";

it("holds every step of every job that lies in view, and of the steps beside it one at most", () => {
  const random = randomFrom(41);
  for (let round = 0; round < 300; round += 1) {
    const jobs = Array.from({ length: 1 + Math.floor(random() * 3) }, () => ({
      samples: 1 + Math.floor(random() * 9),
    }));
    const from = random() * 200;
    const zoom = { from, to: from + random() * 200 };
    const seen = jobs.flatMap(({ samples }) =>
      Array.from({ length: 500 }, (_, step) => step).filter(
        (step) => step * samples >= zoom.from && step * samples <= zoom.to,
      ),
    );
    const found = stepsIn(zoom, "samples", jobs);
    if (found === null) throw new Error("samples are steps");
    for (const step of seen) expect(step >= found.from && step <= found.to).toBe(true);
    expect(Number.isInteger(found.from) && Number.isInteger(found.to)).toBe(true);
    const smallest = Math.min(...jobs.map(({ samples }) => samples));
    const largest = Math.max(...jobs.map(({ samples }) => samples));
    // To the edge of what is seen, so that lines reach it.
    expect(found.from).toBeLessThanOrEqual(zoom.from / largest);
    expect(found.from).toBeGreaterThan(zoom.from / largest - 1);
    expect(found.to).toBeGreaterThanOrEqual(zoom.to / smallest);
    expect(found.to).toBeLessThan(zoom.to / smallest + 1);
  }
});

it("knows no steps along time, nor of no job", () => {
  expect(stepsIn({ from: 0, to: 5 }, "wall", [{ samples: 2 }])).toBeNull();
  expect(stepsIn({ from: 0, to: 5 }, "step", [])).toBeNull();
  expect(stepsIn({ from: -3, to: 5 }, "step", [{}])).toEqual({ from: 0, to: 5 });
});

it("shows the same steps along another axis, where that is one part for all jobs", () => {
  const zoom = { from: 10, to: 20 };
  const job = { samples: 64, tokens: 8_192 };
  expect(onOtherAxis(zoom, "step", "samples", [job, job])).toEqual({ from: 640, to: 1_280 });
  expect(onOtherAxis({ from: 640, to: 1_280 }, "samples", "tokens", [job])).toEqual({ from: 81_920, to: 163_840 });
  expect(onOtherAxis(zoom, "step", "step", [job, { samples: 3 }])).toEqual(zoom);
  expect(onOtherAxis(zoom, "step", "samples", [job, { samples: 3 }])).toBeNull();
  expect(onOtherAxis(zoom, "step", "wall", [job])).toBeNull();
  expect(onOtherAxis(zoom, "wall", "step", [job])).toBeNull();
});

it("goes nearer and further around the middle, and never beyond what there is", () => {
  const random = randomFrom(42);
  const all = { from: 5, to: 105 };
  for (let round = 0; round < 300; round += 1) {
    const from = 5 + random() * 90;
    const zoom = { from, to: from + random() * (105 - from) };
    const times = random() < 0.5 ? 0.5 : 2;
    const found = widened(zoom, all, times, 1);
    const width = Math.max(1, (zoom.to - zoom.from) * times);
    if (found === null) {
      expect(width).toBeGreaterThan(99.99);
      continue;
    }
    expect(found.to - found.from).toBeCloseTo(width, 9);
    expect(found.from).toBeGreaterThanOrEqual(all.from);
    expect(found.to).toBeLessThanOrEqual(all.to + 1e-9);
    const middle = (zoom.from + zoom.to) / 2;
    const isFree = middle - width / 2 >= all.from && middle + width / 2 <= all.to;
    if (isFree) expect((found.from + found.to) / 2).toBeCloseTo(middle, 9);

    const aside = moved(zoom, all, random() - 0.5);
    expect(aside.to - aside.from).toBeCloseTo(zoom.to - zoom.from, 9);
    expect(aside.from >= all.from && aside.to <= all.to + 1e-9).toBe(true);
  }
  expect(moved({ from: 45, to: 65 }, all, 0.5)).toEqual({ from: 55, to: 75 });
  expect(moved({ from: 45, to: 65 }, all, -9)).toEqual({ from: 5, to: 25 });
});
