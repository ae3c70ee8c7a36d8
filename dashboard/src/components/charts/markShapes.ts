/**
 * Shapes of marks: polygons within −1 to 1, all different from the shapes of values in the chart.
 */
import type { MarkKind } from "@/lib/marks";

export type Polygon = readonly (readonly [number, number])[];

const BAR = (left: number, right: number): Polygon => [
  [left, -1],
  [right, -1],
  [right, 1],
  [left, 1],
];
const ROUND: Polygon = Array.from({ length: 16 }, (_, index) => {
  const angle = (index / 16) * 2 * Math.PI;
  return [0.7 * Math.cos(angle), 0.7 * Math.sin(angle)] as const;
});

export const SHAPES: Readonly<Record<MarkKind, readonly Polygon[]>> = {
  preempted: [BAR(-0.9, -0.2), BAR(0.2, 0.9)],
  memory: [
    [
      [-1, -0.55],
      [-0.55, -1],
      [0, -0.45],
      [0.55, -1],
      [1, -0.55],
      [0.45, 0],
      [1, 0.55],
      [0.55, 1],
      [0, 0.45],
      [-0.55, 1],
      [-1, 0.55],
      [-0.45, 0],
    ],
  ],
  restart: [
    [
      [-0.8, -1],
      [1, 0],
      [-0.8, 1],
    ],
  ],
  checkpoint: [ROUND],
};

/** Theme colour of each kind; the shape carries the same information. */
export const TONES: Readonly<Record<MarkKind, string>> = {
  preempted: "--wait",
  memory: "--bad",
  restart: "--ink",
  checkpoint: "--chart-axis",
};
