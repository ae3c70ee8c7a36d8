/** Draws marks into the strip between a chart and the labels of its axis, where no point can lie. */
import { type Cluster, clusters, type Placed, SIGN } from "@/lib/mark-places";
import type { MarkKind } from "@/lib/marks";
import type { ChartColours } from "./colours";
import type { Frame } from "./frame";
import { SHAPES } from "./markShapes";

/** Height of the strip in a chart. */
export const STRIP = 12;
const HALF = SIGN / 2 - 1;
/** A run of checkpoints is a bar of this height. */
const RUN = 3;

export function strip(frame: Frame, places: readonly Placed[], colours: ChartColours): void {
  const { context, ratio } = frame;
  const middle = frame.bottom + (STRIP / 2 + 1) * ratio;
  context.save();
  context.lineJoin = "round";
  context.strokeStyle = colours.panel;
  context.lineWidth = 2 * ratio;
  // In pixels of the page, so that joined marks do not depend on the screen.
  const pixel = (x: number) => frame.x(x) / ratio;
  for (const cluster of clusters(places, pixel, frame.left / ratio, frame.right / ratio))
    if (cluster.kinds[0] === "checkpoint") run(frame, cluster, middle, colours);
    else signs(frame, cluster, middle, colours);
  context.restore();
}

/** One, or the first and the last of several with a bar in between. */
function run({ context, ratio }: Frame, { from, to }: Cluster, middle: number, colours: ChartColours): void {
  context.fillStyle = colours.marks.checkpoint;
  if (to - from >= 1) context.fillRect(from * ratio, middle - (RUN / 2) * ratio, (to - from) * ratio, RUN * ratio);
  for (const at of to - from >= 1 ? [from, to] : [from]) sign(context, "checkpoint", at * ratio, middle, HALF * ratio);
}

function signs({ context, ratio }: Frame, { kinds, from, to }: Cluster, middle: number, colours: ChartColours): void {
  const start = (from + to) / 2 - ((kinds.length - 1) * SIGN) / 2;
  kinds.forEach((kind, index) => {
    context.fillStyle = colours.marks[kind];
    sign(context, kind, (start + index * SIGN) * ratio, middle, HALF * ratio, true);
  });
}

/** With a border in the colour of the ground where it may lie on a run of checkpoints. */
export function sign(
  context: CanvasRenderingContext2D,
  kind: MarkKind,
  x: number,
  y: number,
  size: number,
  hasBorder = false,
): void {
  context.beginPath();
  for (const polygon of SHAPES[kind]) {
    polygon.forEach(([dx, dy], index) => {
      if (index === 0) context.moveTo(x + dx * size, y + dy * size);
      else context.lineTo(x + dx * size, y + dy * size);
    });
    context.closePath();
  }
  if (hasBorder) context.stroke();
  context.fill();
}
