/**
 * Settings of all cards, for a line that has other things: selection, axis, and reset of the zoom. Rare ones are in a panel
 * that opens, and on a small screen all of them are.
 */
import { useClickOutside } from "@mantine/hooks";
import { type ReactNode, useState } from "react";
import { Button } from "@/components/Button";
import { Input } from "@/components/Input";
import { Select } from "@/components/Select";
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
  fraction: "fraction of the run",
  relative: "relative time",
  wall: "wall time",
};

export function Toolbar(props: ToolbarProps) {
  const { search, onSearch, axis, axes, onAxis, marks, isZoomed, onReset } = props;
  return (
    <Frame isZoomed={isZoomed} onReset={onReset}>
      <div className={classes.common}>
        <Input
          size="sm"
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
        <label className={classes.axis}>
          x axis
          <Select size="sm" value={axis} onChange={(event) => onAxis(event.target.value as Axis)}>
            {axes.map((each) => (
              <option key={each} value={each}>
                {NAMES[each]}
              </option>
            ))}
          </Select>
        </label>
      </div>
      <div className={classes.rare}>
        <Rare marks={marks} />
      </div>
    </Frame>
  );
}

interface FrameProps extends Pick<ToolbarProps, "isZoomed" | "onReset"> {
  children: ReactNode;
}

function Frame({ isZoomed, onReset, children }: FrameProps) {
  const [isOpen, setIsOpen] = useState(false);
  const { smoothing } = useLook();
  const place = useClickOutside<HTMLElement>(() => setIsOpen(false));
  return (
    <section
      ref={place}
      className={classes.toolbar}
      data-open={isOpen}
      aria-label="How charts are shown"
      onKeyDown={({ key }) => {
        if (key === "Escape") setIsOpen(false);
      }}
    >
      {isZoomed ? (
        <Button size="sm" onClick={onReset}>
          Reset zoom
        </Button>
      ) : null}
      <Button size="sm" aria-expanded={isOpen} onClick={() => setIsOpen(!isOpen)}>
        {smoothing === 0 ? "View" : `View · smoothing ${smoothing}`} <span aria-hidden>▾</span>
      </Button>
      <div className={classes.settings}>{children}</div>
    </section>
  );
}

function Rare({ marks }: { marks: readonly Mark[] }) {
  const { marks: withMarks } = useChartSettings();
  const { smoothing, change, isDefault, makeDefault } = useLook();
  const setSmoothing = (value: unknown) => change({ smoothing: smoothingOf(value) });
  return (
    <>
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
        <Input
          size="sm"
          type="number"
          min={0}
          max={SMOOTHING_MOST}
          step={0.05}
          value={smoothing}
          aria-label="Smoothing, as a number"
          onChange={(event) => setSmoothing(event.target.value)}
        />
        <Button size="sm" disabled={smoothing === 0} onClick={() => setSmoothing(0)}>
          Off
        </Button>
      </div>
      <Button
        size="sm"
        disabled={isDefault}
        title="Smoothing, axis, logarithmic and clipped charts, for pages that you open from within the dashboard"
        onClick={makeDefault}
      >
        {isDefault ? "My default" : "Make this my default"}
      </Button>
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
      {withMarks && marks.length > 0 ? <MarkLegend marks={marks} /> : null}
    </>
  );
}
