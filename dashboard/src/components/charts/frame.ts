/**
 * Positions of values on the canvas: uPlot's scales as plain arithmetic, because each line needs
 * thousands.
 */
import type uPlot from "uplot";

/** Opacity of steps that a later attempt repeated, and of the raw line behind a smoothed one. */
export const FAINT = 0.32;

export interface Frame {
  context: CanvasRenderingContext2D;
  /** Device pixels of a CSS pixel. */
  ratio: number;
  left: number;
  right: number;
  top: number;
  bottom: number;
  from: number;
  to: number;
  x: (value: number) => number;
  /** NaN for values without a position: not finite, or not above zero on a logarithmic axis. */
  y: (value: number) => number;
}

export function frameOf(plot: uPlot, isLog: boolean): Frame | null {
  const { min: from, max: to } = plot.scales.x ?? {};
  const { min: low, max: high } = plot.scales.y ?? {};
  if (from == null || to == null || low == null || high == null) return null;
  const { left, top, width, height } = plot.bbox;
  const place = isLog ? Math.log10 : (value: number) => value;
  const start = place(low);
  const tall = height / (place(high) - start);
  const wide = width / (to - from);
  return {
    context: plot.ctx,
    ratio: globalThis.devicePixelRatio || 1,
    left,
    right: left + width,
    top,
    bottom: top + height,
    from,
    to,
    x: (value) => left + (value - from) * wide,
    y: (value) => {
      if (!Number.isFinite(value) || (isLog && value <= 0)) return Number.NaN;
      // Far beyond the edge is beyond the edge: browsers draw nothing at all of coordinates that are too large.
      return Math.max(-1e5, Math.min(1e5, top + height - (place(value) - start) * tall));
    },
  };
}
