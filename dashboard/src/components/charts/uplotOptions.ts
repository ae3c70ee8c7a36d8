/**
 * Options of uPlot: own scales and axes, a zoom that the page decides, a cursor shared by all
 * cards.
 */
import type uPlot from "uplot";
import { type Axis, isTime, TITLES } from "@/lib/axes";
import { axisUnit, type Metadata } from "@/lib/series";
import { linearTicks, logTicks, measureOf, tickLabels, wallLabels, wallTicks } from "@/lib/ticks";
import type { ChartColours } from "./colours";
import { STRIP } from "./paintMarks";

const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";
const TICK = 4;
/** Labels of the ticks, with the space below them. */
const LABELS = 20;
/** A moment with its day is long, a number short. */
const TICK_APART_X = { wall: 84, other: 64 };
const TICK_APART_Y = 30;
/** Labels of an axis; fewer do not say how far apart values are. Labels of times are too long for it. */
const LEAST = 3;

type Kind = Metadata["kind"];

interface Setup {
  axis: Axis;
  kind: Kind;
  unit: string;
  isLog: boolean;
  syncKey: string;
  hasMarks: boolean;
  width: number;
  height: number;
  colours: () => ChartColours;
  /**
   * Range of the visible values. uPlot calls it while its own x scale is still the previous one.
   */
  rangeY: () => [number, number];
  draw: (plot: uPlot) => void;
  zoom: (range: { from: number; to: number } | null) => void;
  moved: (plot: uPlot) => void;
}

export function optionsOf({
  axis,
  kind,
  unit,
  isLog,
  syncKey,
  hasMarks,
  width,
  height,
  colours,
  rangeY,
  ...on
}: Setup): uPlot.Options {
  const measure = measureOf(kind);
  const beside = axisUnit({ kind, unit });
  const ratio = () => globalThis.devicePixelRatio || 1;
  let labelsX: string[] = [];
  const look = {
    font: FONT,
    stroke: () => colours().axis,
    grid: { stroke: () => colours().grid, width: 1 },
    ticks: { stroke: () => colours().grid, width: 1, size: TICK },
    gap: TICK,
  };
  return {
    width,
    height,
    series: [{}, { scale: "y", paths: () => null, points: { show: false } }],
    legend: { show: false },
    padding: [8, (plot) => roomForLast(plot, labelsX), 0, 0],
    scales: {
      x: { time: false, range: (_, min, max) => [min, max] },
      y: { distr: isLog ? 3 : 1, range: () => rangeY() },
    },
    axes: [
      {
        ...look,
        // As wide as its gap makes it, which `makeRoom` changes.
        size: (plot) => LABELS + (plot.axes[0]?.gap ?? 0),
        gap: gapOf(hasMarks),
        border: { show: true, stroke: () => colours().grid, width: 1 },
        label: TITLES[axis],
        labelFont: FONT,
        labelSize: 16,
        splits: (plot, _, min, max) => {
          const apart = axis === "wall" ? TICK_APART_X.wall : TICK_APART_X.other;
          const most = Math.max(2, Math.floor(plot.bbox.width / ratio() / apart));
          if (axis === "wall") return wallTicks(min, max, most);
          if (isTime(axis)) return linearTicks(min, max, most, "duration");
          if (axis === "fraction") return linearTicks(min, max, most, "number", LEAST);
          // There is no half step.
          return linearTicks(min, max, Math.max(1, Math.min(most, Math.floor(max - min))), "count", LEAST);
        },
        values: (_, ticks) => {
          labelsX =
            axis === "wall" ? wallLabels(ticks) : tickLabels(ticks, axis === "relative" ? "duration" : "number");
          return labelsX;
        },
      },
      {
        ...look,
        size: (_, labels) => Math.max(48, 16 + 7 * Math.max(0, ...(labels ?? []).map((label) => label.length))),
        splits: (plot, _, min, max) => {
          const most = Math.max(2, Math.floor(plot.bbox.height / ratio() / TICK_APART_Y));
          return isLog ? logTicks(min, max, most) : linearTicks(min, max, most, measure, LEAST);
        },
        values: (_, ticks) => tickLabels(ticks, measure),
        filter: (_, ticks) => ticks,
        ...(beside === "" ? {} : { label: beside, labelFont: FONT, labelSize: 16, labelGap: 2 }),
      },
    ],
    cursor: {
      y: false,
      points: { show: false },
      drag: { x: true, y: false, setScale: false, dist: 4 },
      bind: {
        dblclick: () => () => {
          on.zoom(null);
          return null;
        },
      },
      sync: {
        key: syncKey,
        setSeries: false,
        scales: ["x", null],
        // The zoom is the page's: a drag in one card must not be one in all of them.
        filters: { pub: (type) => type === "mousemove" || type === "mouseleave" },
      },
    },
    hooks: {
      draw: [on.draw],
      setCursor: [on.moved],
      setSelect: [
        (plot) => {
          const { left, width: wide } = plot.select;
          if (wide < 4) return;
          const range = { from: plot.posToVal(left, "x"), to: plot.posToVal(left + wide, "x") };
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          on.zoom(range);
        },
      ],
    },
  };
}

/** Space right of the chart: half of the last label. uPlot calls it after it has the labels. */
function roomForLast({ ctx }: uPlot, labels: readonly string[]): number {
  const { font } = ctx;
  ctx.font = FONT;
  const { width } = ctx.measureText(labels.at(-1) ?? "");
  ctx.font = font;
  return Math.max(12, Math.ceil(width / 2) + 2);
}

/** Room for a strip of marks between the chart and the labels of its axis, or none. */
export function makeRoom(plot: uPlot, hasMarks: boolean): void {
  const [axis] = plot.axes;
  const gap = gapOf(hasMarks);
  if (axis === undefined || axis.gap === gap) return;
  axis.gap = gap;
  plot.redraw(false, true);
}

/** Between ticks and their labels. */
function gapOf(hasMarks: boolean): number {
  return hasMarks ? TICK / 2 + STRIP : TICK;
}
