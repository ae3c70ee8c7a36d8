/** What a chart would draw, written down in place of being drawn. */
import type uPlot from "uplot";
import type { ChartColours } from "@/components/charts/colours";
import { paint } from "@/components/charts/paint";
import { curveOf } from "@/lib/curves";
import { type Line, linesOf } from "@/lib/lines";
import type { Placed } from "@/lib/mark-places";
import { COLOURS } from "@/lib/palette";
import { bucketed, type Point } from "@/testing/buckets";

export const WIDE = 400;
export const TALL = 200;
export const colours: ChartColours = {
  curves: Array.from({ length: COLOURS }, (_, slot) => `#00000${slot}`),
  ramp: [],
  grey: "#888",
  grid: "#111",
  axis: "#222",
  panel: "#333",
  ink: "#444",
  marks: { preempted: "#551", memory: "#552", restart: "#553", checkpoint: "#554" },
};

export type Place = [number, number];
export interface Drawn {
  strokes: { path: Place[][]; alpha: number }[];
  fills: { path: Place[]; alpha: number; colour: string }[];
}

/** What a canvas would be told to draw. */
function recorder(): { context: CanvasRenderingContext2D; drawn: Drawn } {
  const drawn: Drawn = { strokes: [], fills: [] };
  let path: Place[][] = [];
  const context = {
    globalAlpha: 1,
    fillStyle: "",
    beginPath: () => {
      path = [];
    },
    moveTo: (x: number, y: number) => path.push([[x, y]]),
    lineTo: (x: number, y: number) => (path.length === 0 ? path.push([[x, y]]) : path[path.length - 1]?.push([x, y])),
    stroke: () => drawn.strokes.push({ path, alpha: context.globalAlpha }),
    fill: () => drawn.fills.push({ path: path.flat(), alpha: context.globalAlpha, colour: context.fillStyle }),
    fillRect: (x: number, y: number, width: number, height: number) =>
      drawn.fills.push({
        path: [
          [x, y],
          [x + width, y + height],
        ],
        alpha: context.globalAlpha,
        colour: context.fillStyle,
      }),
    arc: (x: number, y: number) => path.push([[x, y]]),
    measureText: () => ({ width: 40 }),
    save() {},
    restore() {},
    rect() {},
    clip() {},
    closePath() {},
    setLineDash() {},
    fillText() {},
  };
  return { context: context as unknown as CanvasRenderingContext2D, drawn };
}

export function draw(lines: Line[], [from, to]: Place, [low, high]: Place, isLog = false, marks: Placed[] = []): Drawn {
  const { context, drawn } = recorder();
  const plot = {
    ctx: context,
    bbox: { left: 0, top: 0, width: WIDE, height: TALL },
    scales: { x: { min: from, max: to }, y: { min: low, max: high } },
  };
  paint(plot as unknown as uPlot, { lines, isLog, colours, marks });
  return drawn;
}

export function line(points: readonly Point[], places: number): Line[] {
  return linesOf(
    [{ job: "a", name: "a", slot: 0, startedAt: null, curves: [curveOf(bucketed(points, places))] }],
    "step",
    0,
  );
}
