/** What holds for all cards: which are shown, how smooth, over which axis, and the way back from a zoom. */
import type { Axis } from "@/lib/curves";
import { changeSettings, SMOOTHING_MOST, smoothingOf, useChartSettings } from "./settings";
import classes from "./Toolbar.module.css";

interface ToolbarProps {
  search: string;
  onSearch: (search: string) => void;
  isZoomed: boolean;
  onReset: () => void;
}

export function Toolbar({ search, onSearch, isZoomed, onReset }: ToolbarProps) {
  const { smoothing, axis } = useChartSettings();
  const setSmoothing = (value: unknown) => changeSettings({ smoothing: smoothingOf(value) });
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
        Across
        <select
          value={axis}
          onChange={(event) => {
            onReset();
            changeSettings({ axis: event.target.value as Axis });
          }}
        >
          <option value="step">step</option>
          <option value="relative">relative time</option>
          <option value="wall">wall time</option>
        </select>
      </label>
      {isZoomed ? (
        <button type="button" className={classes.reset} onClick={onReset}>
          Reset zoom
        </button>
      ) : (
        <span className={classes.hint}>Drag across a chart to zoom</span>
      )}
    </section>
  );
}
