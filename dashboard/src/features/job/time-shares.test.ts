import { describe, expect, it } from "vitest";
import type { SeriesView } from "@/api/generated";
import { percent, remark, type TimeShares, timeShares } from "./time-shares";

function series(part: string, value: (number | string)[], attempt = 1): SeriesView {
  const step = value.map((_, index) => index);
  return {
    name: `time/${part}_seconds`,
    unit: "s",
    attempt,
    count: value.length,
    step,
    time: step,
    value,
    min: value,
    max: value,
  };
}

function share(shares: TimeShares | null, part: string): number | undefined {
  return shares?.shares.find((each) => each.part === part)?.share;
}

describe("timeShares", () => {
  it("adds up to the whole", () => {
    const found = timeShares([
      series("step", [1, 1, 2]),
      series("data", [0.5, 0.5, 0.5]),
      series("forward", [0.2, 0.2, 0.2]),
      series("backward", [0.3, 0.3, 0.3]),
      series("eval", [1]),
    ]);
    expect(found?.steps).toBe(3);
    expect(share(found, "data")).toBeCloseTo(1.5 / 4);
    expect(found?.shares.reduce((sum, each) => sum + each.share, 0)).toBeCloseTo(1);
  });

  it("counts what only some steps have as its cost per step", () => {
    const found = timeShares([series("step", [1, 1, 1, 5]), series("forward", [1, 1, 1, 1]), series("eval", [4])]);
    expect(found?.shares.find((each) => each.part === "eval")).toMatchObject({ seconds: 1, share: 0.5 });
  });

  it("takes the steps of all attempts, and no value that is no number", () => {
    const found = timeShares([
      series("step", [1], 1),
      series("step", [1, "NaN"], 2),
      series("forward", [1], 1),
      series("forward", [1, "NaN"], 2),
    ]);
    expect(found).toMatchObject({ steps: 2, shares: [{ part: "forward", seconds: 1, share: 1 }] });
  });

  it("says nothing where no step was timed", () => {
    expect(timeShares([])).toBeNull();
    expect(timeShares([series("step", [0]), series("data", [0])])).toBeNull();
  });
});

describe("remark", () => {
  function of(shares: Record<string, number>): string {
    const parts = Object.entries(shares).map(([part, value]) => series(part, [value]));
    const found = timeShares([series("step", [1]), ...parts]);
    return found === null ? "" : remark(found);
  }

  it("names the largest thing that holds the step up", () => {
    expect(of({ data: 0.41, communication: 0.2, forward: 0.2, backward: 0.19 })).toBe(
      "The step waits for data 41 % of the time.",
    );
    expect(of({ data: 0.16, communication: 0.3, backward: 0.54 })).toBe(
      "The step waits for the other ranks 30 % of the time.",
    );
  });

  it("says that the model computes where nothing does", () => {
    expect(of({ data: 0.05, forward: 0.4, backward: 0.5, optimizer: 0.05 })).toBe(
      "The model computes 90 % of the time.",
    );
  });
});

it.each([
  [0.41, "41 %"],
  [0.0994, "9.9 %"],
  [0.0996, "10 %"],
  [0.004, "0.4 %"],
  [0.0001, "<0.1 %"],
  [0, "0 %"],
  [1, "100 %"],
])("writes %d as %s", (value, text) => {
  expect(percent(value)).toBe(text);
});
