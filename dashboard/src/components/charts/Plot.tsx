/** The drawing area of a card: one uPlot for as long as it is shown, given new data without losing zoom or cursor. */
import "uplot/dist/uPlot.min.css";
import { type RefObject, useCallback, useLayoutEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import type { Axis } from "@/lib/axes";
import { extentOfX, extentOfY, isNothingBetween, type Line, type Reading } from "@/lib/lines";
import { placed } from "@/lib/mark-places";
import type { Mark } from "@/lib/marks";
import { within } from "@/lib/outliers";
import type { Described } from "@/lib/series";
import { limitsOf, valueRange } from "@/lib/ticks";
import type { Zoom } from "@/lib/zoom";
import { useChartColours } from "./colours";
import { followStrip } from "./followStrip";
import { KeyReader } from "./KeyReader";
import classes from "./Plot.module.css";
import { paint } from "./paint";
import { placeOf, Tooltip } from "./Tooltip";
import { followFingers } from "./touch";
import { makeRoom, optionsOf } from "./uplotOptions";

/** Contents of a chart, on a card and in full screen. */
export interface Drawing {
  lines: readonly Line[];
  /** Events of the job whose lines are drawn. */
  marks: readonly Mark[];
  /** Axis units of one step, on an axis of steps. */
  units: number;
  axis: Axis;
  series: Described;
  isLog: boolean;
  /** Limits of clipping; values beyond are marked. Null without clipping. */
  clip: readonly [number, number] | null;
  /** Of the y axis, as it was typed; null where it is automatic. */
  range: Zoom | null;
  zoom: Zoom | null;
  onZoom: (zoom: Zoom | null) => void;
  /** Description of the drawing. */
  label: string;
  syncKey: string;
  /** The job that the user points at, here or elsewhere. */
  hot?: string | null;
  onHot?: ((job: string | null) => void) | undefined;
}

interface PlotProps extends Drawing {
  height: number;
  /** Canvas of the drawing, for saving it. */
  canvas?: RefObject<HTMLCanvasElement | null>;
  /** Opens the whole screen, where it is not that already. */
  onExpand?: () => void;
}

interface Spot {
  left: number;
  top: number;
}

export function Plot(props: PlotProps) {
  const { lines, marks, units, axis, series, isLog, clip, range, zoom, label, height, syncKey, hot = null } = props;
  const { kind, unit } = series;
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const isOver = useRef(false);
  const [spot, setSpot] = useState<Spot | null>(null);
  const colours = useChartColours();
  const [from, to] = zoom === null ? (extentOfX(lines) ?? [0, 1]) : [zoom.from, zoom.to];
  const places = useMemo(() => placed(marks, lines, axis, units), [marks, lines, axis, units]);
  const now = useRef({ ...props, colours, from, to, places });
  now.current = { ...props, colours, from, to, places };
  const leave = useCallback(() => setSpot(null), []);
  const read = (reading: Reading | null) => {
    const shown = plot.current;
    if (shown === null) return;
    const found = reading === null ? null : spotOf(shown, reading);
    shown.setCursor(found ?? { left: -10, top: -10 }, false);
    setSpot(found);
  };

  useLayoutEffect(() => {
    const element = holder.current;
    if (element === null) return;
    const made = new uPlot(
      optionsOf({
        axis,
        kind,
        unit,
        isLog,
        syncKey,
        hasMarks: now.current.places.length > 0,
        width: element.clientWidth,
        height,
        colours: () => now.current.colours,
        rangeY: () => {
          const { lines: drawn, from: first, to: last, clip: bounds, range: typed, series: of } = now.current;
          if (typed !== null && !(isLog && typed.from <= 0)) return [typed.from, typed.to];
          return valueRange(...within(extentOfY(drawn, first, last, isLog), bounds), isLog, limitsOf(of.domain));
        },
        draw: (self) => {
          const { lines: drawn, colours: theme, places: marked, clip: bounds, range: typed, hot: near } = now.current;
          const isClipped = bounds !== null || typed !== null;
          paint(self, { lines: drawn, isLog, isClipped, colours: theme, marks: marked, hot: near ?? null });
        },
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
    const ends = [
      followFingers(made, () => now.current.onZoom(null)),
      followStrip(made, (isThere) => {
        isOver.current = isThere && now.current.places.length > 0;
      }),
    ];
    const sizes = new ResizeObserver(() => {
      if (element.clientWidth === made.width) return;
      made.setSize({ width: element.clientWidth, height });
      setSpot(null);
    });
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      for (const end of ends) end();
      made.destroy();
      plot.current = null;
    };
  }, [axis, kind, unit, isLog, height, syncKey]);

  // Before uPlot's own first drawing, which waits for the end of this task: so a chart is drawn once, and not empty first.
  // biome-ignore lint/correctness/useExhaustiveDependencies: whatever changes what is drawn draws it again
  useLayoutEffect(() => {
    const shown = plot.current;
    if (shown === null) return;
    makeRoom(shown, places.length > 0);
    shown.setData(
      [
        [from, to],
        [null, null],
      ],
      false,
    );
    shown.setScale("x", { min: from, max: to });
  }, [lines, places, clip, range, from, to, colours, axis, series, isLog, height, syncKey, hot]);

  const absence = absenceOf(lines, from, to, isLog);
  return (
    <div className={classes.plot} style={{ height }}>
      <div ref={holder} role="img" aria-label={label} className={classes.canvas} />
      <KeyReader {...props} from={from} to={to} onRead={read} onExpand={props.onExpand} />
      {absence === null ? null : <p className={classes.nothing}>{absence}</p>}
      {spot !== null && plot.current !== null ? (
        <Tooltip
          plot={plot.current}
          spot={spot}
          lines={lines}
          places={places}
          axis={axis}
          series={series}
          onGone={leave}
          onNear={props.onHot}
        />
      ) : null}
    </div>
  );
}

/** In the middle of the height where the value has no place on the axis. */
function spotOf(plot: uPlot, reading: Reading): Spot {
  const { left, top } = placeOf(plot, reading);
  return { left, top: Number.isFinite(top) ? top : plot.over.clientHeight / 2 };
}

/** Return the reason for an empty chart. */
function absenceOf(lines: readonly Line[], from: number, to: number, isLog: boolean): string | null {
  if (isNothingBetween(lines, from, to)) return "No points here";
  const isBelow = isLog && Number.isNaN(extentOfY(lines, from, to, true)[0]);
  return isBelow ? "Nothing above 0, and a log axis has no other place" : null;
}
