/** Settings of all cards: selection, smoothing, axis, and reset of the zoom. */
import type { Axis } from "@/lib/axes";
import type { Mark } from "@/lib/marks";
import { MarkLegend } from "./MarkLegend";
import { changeSettings, SMOOTHING_MOST, smoothingOf, useChartSettings } from "./settings";
import classes from "./Toolbar.module.css";
import { useLook } from "./useLook";

interface ToolbarProps {
  search: string;
  onSearch: (search: string) => void;
  axis: Axis;
  /** Axes that all curves support. */
  axes: readonly Axis[];
  onAxis: (axis: Axis) => void;
  /** Events of the job, shown or not; empty for several jobs. */
  marks: readonly Mark[];
  isZoomed: boolean;
  onReset: () => void;
}

const NAMES: Readonly<Record<Axis, string>> = {
  step: "step",
  samples: "samples",
  tokens: "tokens",
  relative: "relative time",
  wall: "wall time",
};

export function Toolbar({ search, onSearch, axis, axes, onAxis, marks, isZoomed, onReset }: ToolbarProps) {
  const { marks: withMarks } = useChartSettings();
  const { smoothing, change, isDefault, makeDefault } = useLook();
  const setSmoothing = (value: unknown) => change({ smoothing: smoothingOf(value) });
  return (
    <section className={classes.toolbar} aria-label="How charts are shown">
      <input
        type="search"
        className={classes.search}
        placeholder="Filter charts"
        aria-label="Filter charts by the name of the metric"
        data-page-search
        value={search}
        onChange={(event) => onSearch(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") event.currentTarget.blur();
        }}
      />
      <div className={classes.smoothing}>
        <label htmlFor="chart-smoothing">Smoothing</label>
        <input
          id="chart-smoothing"
          type="range"
          min={0}
          max={SMOOTHING_MOST}
          step={0.001}
          value={smoothing}
          aria-valuetext={smoothing === 0 ? "off" : String(smoothing)}
          onChange={(event) => setSmoothing(event.target.value)}
        />
        <input
          type="number"
          min={0}
          max={SMOOTHING_MOST}
          step={0.05}
          value={smoothing}
          aria-label="Smoothing, as a number"
          onChange={(event) => setSmoothing(event.target.value)}
        />
        <button type="button" disabled={smoothing === 0} onClick={() => setSmoothing(0)}>
          Off
        </button>
      </div>
      <label className={classes.axis}>
        x axis
        <select value={axis} onChange={(event) => onAxis(event.target.value as Axis)}>
          {axes.map((each) => (
            <option key={each} value={each}>
              {NAMES[each]}
            </option>
          ))}
        </select>
      </label>
      <button
        type="button"
        disabled={isDefault}
        title="Smoothing, axis, logarithmic and clipped charts, for pages that you open from within the dashboard"
        onClick={makeDefault}
      >
        {isDefault ? "My default" : "Make this my default"}
      </button>
      {marks.length > 0 ? (
        <label className={classes.marks}>
          <input
            type="checkbox"
            checked={withMarks}
            onChange={(event) => changeSettings({ marks: event.target.checked })}
          />
          Marks
        </label>
      ) : null}
      {isZoomed ? (
        <button type="button" className={classes.reset} onClick={onReset}>
          Reset zoom
        </button>
      ) : (
        <span className={classes.hint}>Drag across a chart to zoom</span>
      )}
      {withMarks && marks.length > 0 ? (
        <div className={classes.legend}>
          <MarkLegend marks={marks} />
        </div>
      ) : null}
    </section>
  );
}
