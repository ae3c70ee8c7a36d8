/** What is under the cursor: every job's value there, the nearest line first. */
import type uPlot from "uplot";
import type { Axis } from "@/lib/curves";
import { duration, moment, number } from "@/lib/format";
import { type Line, type Reading, readingsAt } from "@/lib/lines";
import { COLOURS } from "@/lib/palette";
import { useChartColours } from "./colours";
import { Swatch } from "./Swatch";
import classes from "./Tooltip.module.css";

const ROWS = 12;
const ROW_PX = 21;
const REACH = 0.02;

interface TooltipProps {
  plot: uPlot;
  spot: { left: number; top: number };
  lines: readonly Line[];
  axis: Axis;
}

export function Tooltip({ plot, spot, lines, axis }: TooltipProps) {
  const colours = useChartColours();
  const { min = 0, max = 1 } = plot.scales.x ?? {};
  const found = readingsAt(lines, plot.posToVal(spot.left, "x"), ((max ?? 1) - (min ?? 0)) * REACH)
    .map((reading) => ({ ...reading, ...placeOf(plot, reading) }))
    .sort((a, b) => Math.abs(a.top - spot.top) - Math.abs(b.top - spot.top));
  if (found.length === 0) return null;
  const several = new Set(lines.map((line) => line.job)).size > 1;
  const isSmoothed = found.some(({ line }) => line.smoothed !== null);
  const area = plot.over.getBoundingClientRect();
  const x = area.left + spot.left;
  const isRight = x > window.innerWidth / 2;
  const side = isRight ? { right: window.innerWidth - x + 14 } : { left: x + 14 };
  // As high as the rows need, where the window ends before they do.
  const top = Math.max(8, Math.min(area.top + 8, window.innerHeight - 64 - Math.min(found.length, ROWS + 1) * ROW_PX));
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
              background: colours.curves[line.slot % COLOURS],
            }}
          />
        ) : null,
      )}
      <div className={classes.tooltip} style={{ top, ...side }} aria-hidden data-testid="chart-tooltip">
        <table>
          <thead>
            <tr>
              {several ? <th>Job</th> : null}
              {isSmoothed ? <th>Smoothed</th> : null}
              <th>Value</th>
              <th>Step</th>
              <th>{axis === "wall" ? "Time" : "After"}</th>
            </tr>
          </thead>
          <tbody>
            {found.slice(0, ROWS).map(({ line, index }) => (
              <Row key={line.job} line={line} index={index} several={several} isSmoothed={isSmoothed} axis={axis} />
            ))}
          </tbody>
        </table>
        {found.length > ROWS ? <p>and {found.length - ROWS} more</p> : null}
        {several ? null : <Range line={(found[0] as Reading).line} index={(found[0] as Reading).index} />}
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
}: Reading & { several: boolean; isSmoothed: boolean; axis: Axis }) {
  const time = line.curve.time[index] as number;
  const value = number(line.curve.value[index] as number);
  return (
    <tr>
      {several ? (
        <td className={classes.name}>
          <Swatch slot={line.slot} /> {line.name}
        </td>
      ) : null}
      {isSmoothed ? (
        <td className={classes.main}>{line.smoothed === null ? "" : number(line.smoothed[index] as number)}</td>
      ) : null}
      <td className={isSmoothed ? undefined : classes.main}>{value}</td>
      <td>{number(line.curve.step[index] as number)}</td>
      <td>{axis === "wall" ? moment(new Date(time * 1_000).toISOString()) : duration(time - line.origin)}</td>
    </tr>
  );
}

/** What else is in the bucket, where a place stands for several points. */
function Range({ line, index }: Reading) {
  const low = line.curve.min[index] as number;
  const high = line.curve.max[index] as number;
  const isNone = Number.isNaN(line.curve.value[index]);
  if (low === high || (Number.isNaN(low) && Number.isNaN(high))) return null;
  return (
    <p>
      {number(low)} to {number(high)} around here{isNone ? ", and NaN" : ""}
    </p>
  );
}

function placeOf(plot: uPlot, { line, index }: Reading): { left: number; top: number } {
  const value = (line.smoothed ?? line.curve.value)[index] as number;
  const isDrawn = Number.isFinite(value) && (plot.scales.y?.distr !== 3 || value > 0);
  return {
    left: plot.valToPos(line.x[index] as number, "x"),
    top: isDrawn ? plot.valToPos(value, "y") : Number.POSITIVE_INFINITY,
  };
}
