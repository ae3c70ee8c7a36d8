import { describe, expect, it } from "vitest";
import { curveOf } from "@/lib/curves";
import { linesOf } from "@/lib/lines";
import type { Placed } from "@/lib/mark-places";
import { MARK_KINDS, type MarkKind } from "@/lib/marks";
import { bucketed } from "@/testing/buckets";
import { colours, draw, line, TALL } from "@/testing/canvas";
import { STRIP } from "./paintMarks";

describe("marks", () => {
  const place = (kind: MarkKind, x: number, attempt = 1): Placed => ({
    mark: { kind, attempt, at: 0, step: x, words: "" },
    x,
  });
  const points = Array.from({ length: 100 }, (_, step) => ({ step, value: step }));

  it("are below the chart, where they hide no point, each with its own colour and its own shape", () => {
    const plain = draw(line(points, 1_000), [0, 99], [0, 99]);
    const places = MARK_KINDS.map((kind, index) => place(kind, 20 * (index + 1)));
    const marked = draw(line(points, 1_000), [0, 99], [0, 99], false, places);
    const signs = marked.fills.slice(plain.fills.length);
    expect(new Set(signs.map(({ colour }) => colour))).toEqual(new Set(Object.values(colours.marks)));
    expect(new Set(signs.map(({ path }) => path.length)).size).toBe(4);
    for (const [, y] of signs.flatMap(({ path }) => path)) expect(y > TALL && y <= TALL + STRIP + 1).toBe(true);
    expect(marked.strokes.slice(0, plain.strokes.length)).toEqual(plain.strokes);
  });

  it("become one bar where checkpoints are dense", () => {
    const places = Array.from({ length: 100 }, (_, step) => place("checkpoint", step));
    const plain = draw(line(points, 1_000), [0, 99], [0, 99]);
    const marked = draw(line(points, 1_000), [0, 99], [0, 99], false, places);
    expect(marked.fills).toHaveLength(plain.fills.length + 3);
  });

  it("meet the line where an attempt begins", () => {
    const lines = linesOf(
      [
        {
          job: "a",
          name: "a",
          slot: 0,
          startedAt: null,
          curves: [curveOf(bucketed(points, 1_000, 1)), curveOf(bucketed(points.slice(50), 1_000, 2))],
        },
      ],
      "step",
      0,
    );
    const { strokes } = draw(lines, [0, 100], [0, 100], false, [place("restart", 40, 2)]);
    expect(strokes.map(({ path }) => path.flat())).toContainEqual([
      [160, 0],
      [160, TALL],
    ]);
  });
});
