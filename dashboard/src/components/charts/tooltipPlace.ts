/**
 * Position of a tooltip: beside the cursor if it fits, else below or above the chart, always in the
 * window.
 */

interface Size {
  width: number;
  height: number;
}

const BESIDE = 14;
const EDGE = 8;
/** The labels of the axis, which one reads together with the tooltip. */
const BELOW = 56;

/** `area` is the chart's, `x` the cursor's, all of them in the window. */
export function tooltipPlace(
  box: Size,
  x: number,
  area: { top: number; bottom: number },
  window: Size,
): { left: number; top: number } {
  const isRight = x > window.width / 2;
  const beside = isRight ? x - BESIDE - box.width : x + BESIDE;
  const within = (at: number, size: number, room: number) => Math.max(EDGE, Math.min(at, room - EDGE - size));
  const left = within(beside, box.width, window.width);
  const isBelow = area.bottom + BELOW + box.height <= window.height - EDGE;
  const aside = isBelow ? area.bottom + BELOW : area.top - EDGE - box.height;
  const top = within(left === beside ? area.top + EDGE : aside, box.height, window.height);
  return { left, top };
}
