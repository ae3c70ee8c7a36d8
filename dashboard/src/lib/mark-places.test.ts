import { describe, expect, it } from "vitest";
import { randomFrom } from "@/testing/random";
import type { Axis } from "./axes";
import type { Curve } from "./curves";
import { type Line, linesOf } from "./lines";
import { type Cluster, clusters, edges, type Placed, placed, SIGN, told } from "./mark-places";
import { MARK_KINDS, type Mark, type MarkKind } from "./marks";

const SAMPLES = 64;

/** Steps `from` to `to`; each takes two seconds, the first one ends at `start`. */
function attempt(number: number, from: number, to: number, start: number): Curve {
  const step = Float64Array.from({ length: to - from + 1 }, (_, index) => from + index);
  return {
    name: "train/loss",
    unit: "",
    attempt: number,
    count: step.length,
    step,
    time: step.map((each) => start + (each - from) * 2),
    value: step,
    min: step,
    max: step,
    span: null,
    nonFinite: 0,
    perPlace: 1,
  };
}

function lines(axis: Axis, ...curves: Curve[]): Line[] {
  return linesOf([{ job: "a", name: "a", slot: 0, startedAt: 990, perStep: { samples: SAMPLES }, curves }], axis, 0);
}

function mark(kind: MarkKind, number: number | null, at: number, step: number | null): Mark {
  return { kind, attempt: number, at, step, words: `${kind} ${step}` };
}

describe("placed", () => {
  const curves = [attempt(1, 1, 60, 1_000), attempt(2, 41, 100, 2_000)];
  const marks = [
    mark("checkpoint", 1, 1_083, 40),
    mark("preempted", 1, 1_300, null),
    mark("restart", 2, 1_990, 40),
    mark("memory", 2, 2_019, null),
    mark("checkpoint", 2, 2_200, 100),
  ];
  const on = (axis: Axis, units = 1) =>
    placed(marks, lines(axis, ...curves), axis, units).map(({ mark: { kind, at }, x }) => [kind, at, x]);

  it("lies along steps where the job was: at its step, or where the curve was at that moment", () => {
    expect(on("step")).toEqual([
      ["checkpoint", 1_083, 40],
      ["restart", 1_990, 40],
      // 19 s after the first of its steps, which take 2 s each.
      ["memory", 2_019, 50.5],
      ["preempted", 1_300, 60],
      ["checkpoint", 2_200, 100],
    ]);
    expect(on("samples", SAMPLES).map(([, , x]) => x)).toEqual([40, 40, 50.5, 60, 100].map((step) => step * SAMPLES));
  });

  it("lies along time at its moment, but a checkpoint at that of its step, not when it was stored", () => {
    expect(on("wall")).toEqual([
      ["checkpoint", 1_083, 1_078],
      ["preempted", 1_300, 1_300],
      ["restart", 1_990, 1_990],
      ["memory", 2_019, 2_019],
      ["checkpoint", 2_200, 2_118],
    ]);
    expect(on("relative").map(([, , x]) => x)).toEqual([88, 310, 1_000, 1_029, 1_128]);
  });

  it("begins an attempt at its moment, also where its first point is of the very step that it went on from", () => {
    const along = lines("wall", attempt(2, 40, 60, 2_000));
    expect(placed([mark("restart", 2, 1_990, 40)], along, "wall", 1).map(({ x }) => x)).toEqual([1_990]);
  });

  it("finds a place also where a card has no points of the attempt", () => {
    const sparse = lines("step", attempt(1, 10, 20, 1_000));
    expect(placed(marks, sparse, "step", 1).map(({ x }) => x)).toEqual([20, 20, 40, 40, 100]);
    expect(placed(marks, [], "step", 1)).toEqual([]);
  });
});

describe("clusters", () => {
  const pixel = (x: number) => x;
  const at = (kind: MarkKind, x: number): Placed => ({ mark: mark(kind, 1, 0, x), x });
  const random = randomFrom(51);
  const rounds = Array.from({ length: 200 }, () => {
    const many = 1 + Math.floor(random() * 60);
    const wide = 100 + random() * 800;
    return Array.from({ length: many }, () =>
      at(MARK_KINDS[Math.floor(random() * 4)] as MarkKind, random() * wide),
    ).sort((a, b) => a.x - b.x);
  });
  const isSaved = ({ kinds }: Cluster) => kinds.includes("checkpoint");

  it("draws every mark, in a sign of its own kind, and no sign over another of its row", () => {
    for (const places of rounds) {
      const found = clusters(places, pixel, 0, 1_000);
      for (const {
        mark: { kind },
        x,
      } of places)
        expect(found.some(({ kinds, from, to }) => kinds.includes(kind) && x >= from && x <= to)).toBe(true);
      for (const row of [found.filter(isSaved), found.filter((cluster) => !isSaved(cluster))])
        row.forEach((cluster, index) => {
          const next = row[index + 1];
          if (next !== undefined) expect(edges(next)[0]).toBeGreaterThanOrEqual(edges(cluster)[1]);
        });
      // Where checkpoints are one run, each is near the next: found by looking at all pairs.
      const saved = places.filter(({ mark: { kind } }) => kind === "checkpoint").map(({ x }) => x);
      const gaps = saved.filter((x, index) => index > 0 && x - (saved[index - 1] as number) >= SIGN).length;
      expect(found.filter(isSaved)).toHaveLength(saved.length === 0 ? 0 : gaps + 1);
    }
  });

  it("keeps apart what has room, and tells each kind once where there is none", () => {
    expect(clusters([at("restart", 10), at("restart", 50)], pixel, 0, 100)).toHaveLength(2);
    const places = [at("restart", 50), at("preempted", 51), at("restart", 52), at("memory", 53)];
    expect(clusters(places, pixel, 0, 100)).toEqual([{ kinds: ["preempted", "memory", "restart"], from: 50, to: 53 }]);
  });

  it("leaves out what is not in view", () => {
    const places = [at("checkpoint", -5), at("checkpoint", 0), at("checkpoint", 100), at("checkpoint", 105)];
    expect(clusters(places, pixel, 0, 100).map(({ from }) => from)).toEqual([0, 100]);
  });

  it("stays readable with ten thousand checkpoints", () => {
    const places = Array.from({ length: 10_000 }, (_, step) => at("checkpoint", step / 20));
    expect(clusters(places, pixel, 0, 500)).toEqual([{ kinds: ["checkpoint"], from: 0, to: 499.95 }]);
  });
});

it("tells of checkpoints in one sentence, and of the rest each in its own", () => {
  const at = (kind: MarkKind, step: number): Placed => ({ mark: mark(kind, 1, 0, step), x: step });
  expect(told([at("checkpoint", 40)])).toEqual([{ kind: "checkpoint", words: "checkpoint 40" }]);
  expect(told([at("checkpoint", 1_000), at("restart", 50), at("checkpoint", 60)])).toEqual([
    { kind: "restart", words: "restart 50" },
    { kind: "checkpoint", words: "2 checkpoints, of steps 60 to 1,000" },
  ]);
  expect(told([])).toEqual([]);
});
