/** Values under the cursor for every job, the nearest line first. */
import { useEffect, useLayoutEffect, useRef } from "react";
import type uPlot from "uplot";
import { type Axis, isTime, TITLES } from "@/lib/axes";
import { duration, moment, number } from "@/lib/format";
import { type Line, type Reading, readingsAt } from "@/lib/lines";
import { type Placed, SIGN, told } from "@/lib/mark-places";
import { figure, type Metadata, measured } from "@/lib/series";
import { colourAt, useChartColours } from "./colours";
import { MarkIcon } from "./MarkIcon";
import { Swatch } from "./Swatch";
import classes from "./Tooltip.module.css";
import { tooltipPlace } from "./tooltipPlace";
import { attemptName } from "./words";

const ROWS = 12;
const MARKS = 4;
const REACH = 0.02;

interface TooltipProps {
  plot: uPlot;
  spot: { left: number; top: number };
  lines: readonly Line[];
  places: readonly Placed[];
  axis: Axis;
  series: Metadata;
  /** The chart is not below the cursor any more. */
  onGone: () => void;
  /** The job whose line is nearest to the cursor; null when the cursor leaves. */
  onNear: ((job: string | null) => void) | undefined;
}

export function Tooltip({ plot, spot, lines, places, axis, series, onGone, onNear }: TooltipProps) {
  const colours = useChartColours();
  const { min = 0, max = 1 } = plot.scales.x ?? {};
  const found = readingsAt(lines, plot.posToVal(spot.left, "x"), ((max ?? 1) - (min ?? 0)) * REACH, axis)
    .map((reading) => ({ ...reading, ...placeOf(plot, reading) }))
    .sort((a, b) => Math.abs(a.top - spot.top) - Math.abs(b.top - spot.top));
  // A page that is scrolled takes the chart away from under it, and a finger sends no word of that.
  useEffect(() => {
    window.addEventListener("scroll", onGone, { capture: true, passive: true });
    return () => window.removeEventListener("scroll", onGone, { capture: true });
  }, [onGone]);
  const near = found[0]?.line.job ?? null;
  useEffect(() => {
    onNear?.(near);
  }, [near, onNear]);
  useEffect(() => () => onNear?.(null), [onNear]);
  const box = useRef<HTMLDivElement>(null);
  // After each drawing, because its size depends on its text.
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const area = plot.over.getBoundingClientRect();
    const size = { width: element.offsetWidth, height: element.offsetHeight };
    const room = { width: document.documentElement.clientWidth, height: window.innerHeight };
    const { left, top } = tooltipPlace(size, area.left + spot.left, area, room);
    element.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  });
  const marks = told(places.filter(({ x }) => Math.abs(plot.valToPos(x, "x") - spot.left) <= SIGN * 0.75));
  if (found.length === 0 && marks.length === 0) return null;
  const several = new Set(lines.map((line) => line.job)).size > 1;
  const isSmoothed = found.some(({ line }) => line.smoothed !== null);
  return (
    <>
      {found.slice(0, ROWS).map(({ line, left, top }) =>
        Number.isFinite(top) ? (
          <span
            key={line.job}
            className={classes.dot}
            style={{
              left: left + plot.over.offsetLeft,
              top: top + plot.over.offsetTop,
              background: colourAt(colours, line.slot),
            }}
          />
        ) : null,
      )}
      <div
        ref={box}
        className={classes.tooltip}
        data-several={several || undefined}
        data-counted={isCounted(axis) || undefined}
        aria-hidden
        data-testid="chart-tooltip"
      >
        {found.length > 0 ? (
          <table>
            <thead>
              <tr>
                {several ? <th>Job</th> : null}
                {isSmoothed ? <th>Smoothed</th> : null}
                <th>Value</th>
                <th className={classes.step}>Step</th>
                {isCounted(axis) ? <th className={classes.counted}>{TITLES[axis]}</th> : null}
                <th className={classes.time}>{axis === "wall" ? "Time" : "After"}</th>
              </tr>
            </thead>
            <tbody>
              {found.slice(0, ROWS).map(({ line, index }) => (
                <Row
                  key={line.job}
                  line={line}
                  index={index}
                  several={several}
                  isSmoothed={isSmoothed}
                  axis={axis}
                  series={series}
                />
              ))}
            </tbody>
          </table>
        ) : null}
        {found.length > ROWS ? <p>and {found.length - ROWS} more</p> : null}
        {found[0] !== undefined && !several && found[0].index >= found[0].line.end ? (
          <p>{attemptName(found[0].line.curve.attempt)}: these steps were run again</p>
        ) : null}
        {found[0] === undefined || several ? null : (
          <Range line={found[0].line} index={found[0].index} series={series} />
        )}
        {marks.slice(0, MARKS).map(({ kind, words }) => (
          <p key={kind + words} className={classes.mark}>
            <MarkIcon kind={kind} />
            <span>{words}</span>
          </p>
        ))}
        {marks.length > MARKS ? <p>and {marks.length - MARKS} more, see the timeline</p> : null}
      </div>
    </>
  );
}

function Row({
  line,
  index,
  several,
  isSmoothed,
  axis,
  series,
}: Reading & { several: boolean; isSmoothed: boolean; axis: Axis; series: Metadata }) {
  const time = line.curve.time[index] as number;
  const value = measured(line.curve.value[index] as number, series);
  return (
    <tr>
      {several ? (
        <td className={classes.name}>
          <Swatch slot={line.slot} /> {line.name}
        </td>
      ) : null}
      {isSmoothed ? (
        <td className={classes.main}>
          {line.smoothed === null ? "" : measured(line.smoothed[index] as number, series)}
        </td>
      ) : null}
      <td className={isSmoothed ? undefined : classes.main}>{value}</td>
      <td className={classes.step}>{number(line.curve.step[index] as number)}</td>
      {isCounted(axis) ? <td>{number(line.x[index] as number)}</td> : null}
      <td className={classes.time}>
        {axis === "wall" ? moment(new Date(time * 1_000).toISOString()) : duration(time - line.origin)}
      </td>
    </tr>
  );
}

/** Along an axis of something that steps are made of. */
function isCounted(axis: Axis): boolean {
  return axis !== "step" && !isTime(axis);
}

/** Range of a bucket, if a position stands for several points. */
function Range({ line, index, series }: Reading & { series: Metadata }) {
  const low = line.curve.min[index] as number;
  const high = line.curve.max[index] as number;
  const isNone = Number.isNaN(line.curve.value[index]);
  if (low === high || (Number.isNaN(low) && Number.isNaN(high))) return null;
  return (
    <p>
      {figure(low, series)} to {measured(high, series)} around here{isNone ? ", and NaN" : ""}
    </p>
  );
}

/** Pixels of a place; infinity where its value is not drawn. */
export function placeOf(plot: uPlot, { line, index }: Reading): { left: number; top: number } {
  const value = (line.smoothed ?? line.curve.value)[index] as number;
  const { distr, min, max } = plot.scales.y ?? {};
  const isWithin = value >= (min ?? Number.NEGATIVE_INFINITY) && value <= (max ?? Number.POSITIVE_INFINITY);
  const isDrawn = isWithin && (distr !== 3 || value > 0);
  return {
    left: plot.valToPos(line.x[index] as number, "x"),
    top: isDrawn ? plot.valToPos(value, "y") : Number.POSITIVE_INFINITY,
  };
}
