/** The drawing area of a card: one uPlot for as long as it is shown, given new data without losing zoom or cursor. */
import "uplot/dist/uPlot.min.css";
import { type RefObject, useLayoutEffect, useRef, useState } from "react";
import uPlot from "uplot";
import type { Axis } from "@/lib/curves";
import { extentOfX, extentOfY, isNothingBetween, type Line } from "@/lib/lines";
import { valueRange } from "@/lib/ticks";
import { useChartColours } from "./colours";
import classes from "./Plot.module.css";
import { paint } from "./paint";
import { Tooltip } from "./Tooltip";
import { optionsOf } from "./uplotOptions";

export interface Zoom {
  from: number;
  to: number;
}

interface PlotProps {
  lines: readonly Line[];
  axis: Axis;
  unit: string;
  isLog: boolean;
  zoom: Zoom | null;
  onZoom: (zoom: Zoom | null) => void;
  /** What is drawn, in words. */
  label: string;
  height: number;
  syncKey: string;
  /** Where the picture is, for saving it. */
  canvas?: RefObject<HTMLCanvasElement | null>;
}

interface Spot {
  left: number;
  top: number;
}

export function Plot(props: PlotProps) {
  const { lines, axis, unit, isLog, zoom, label, height, syncKey } = props;
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const isOver = useRef(false);
  const [spot, setSpot] = useState<Spot | null>(null);
  const colours = useChartColours();
  const [from, to] = zoom === null ? (extentOfX(lines) ?? [0, 1]) : [zoom.from, zoom.to];
  const now = useRef({ ...props, colours, from, to });
  now.current = { ...props, colours, from, to };

  useLayoutEffect(() => {
    const element = holder.current;
    if (element === null) return;
    const made = new uPlot(
      optionsOf({
        axis,
        unit,
        isLog,
        syncKey,
        width: element.clientWidth,
        height,
        colours: () => now.current.colours,
        rangeY: () => {
          const { lines: drawn, from: first, to: last } = now.current;
          return valueRange(...extentOfY(drawn, first, last, isLog), isLog);
        },
        draw: (self) => paint(self, { lines: now.current.lines, isLog, colours: now.current.colours }),
        zoom: (range) => now.current.onZoom(range),
        moved: ({ cursor: { left = -1, top = -1 } }) => setSpot(isOver.current && left >= 0 ? { left, top } : null),
      }),
      [[], []],
      element,
    );
    plot.current = made;
    if (now.current.canvas) now.current.canvas.current = made.ctx.canvas;
    made.over.addEventListener("mouseenter", () => {
      isOver.current = true;
    });
    made.over.addEventListener("mouseleave", () => {
      isOver.current = false;
      setSpot(null);
    });
    const sizes = new ResizeObserver(() => {
      if (element.clientWidth !== made.width) made.setSize({ width: element.clientWidth, height });
    });
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [axis, unit, isLog, height, syncKey]);

  // Before uPlot's own first drawing, which waits for the end of this task: so a chart is drawn once, and not empty first.
  // biome-ignore lint/correctness/useExhaustiveDependencies: whatever changes what is drawn draws it again
  useLayoutEffect(() => {
    const shown = plot.current;
    if (shown === null) return;
    shown.setData(
      [
        [from, to],
        [null, null],
      ],
      false,
    );
    shown.setScale("x", { min: from, max: to });
  }, [lines, from, to, colours, axis, unit, isLog, height, syncKey]);

  return (
    <div className={classes.plot} style={{ height }}>
      <div ref={holder} role="img" aria-label={label} className={classes.canvas} />
      {isNothingBetween(lines, from, to) ? <p className={classes.nothing}>No points here</p> : null}
      {spot !== null && plot.current !== null ? (
        <Tooltip plot={plot.current} spot={spot} lines={lines} axis={axis} />
      ) : null}
    </div>
  );
}
