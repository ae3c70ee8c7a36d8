/** Rows of the table of runs: one run, and the head of a group. */
import { Link } from "@tanstack/react-router";
import { memo } from "react";
import type { JobState } from "@/api/generated";
import { Button } from "@/components/Button";
import { Swatch } from "@/components/charts/Swatch";
import { StateIcon } from "@/components/StateBadge";
import { number } from "@/lib/format";
import { type Described, figure as shown } from "@/lib/series";
import type { RowActions } from "./RunTable";
import classes from "./RunTable.module.css";
import type { RunGroup } from "./runs";
import { type Column, endOf, type Settings } from "./settings";

interface RunRowProps {
  id: string;
  name: string;
  state: JobState;
  figure: number | null;
  difference: number | null;
  step: number | null;
  bestStep: number | null;
  settings: Settings;
  columns: readonly Column[];
  metric: Described | undefined;
  slot: number;
  /** Key of its group. */
  group: string | null;
  isHidden: boolean;
  isBaseline: boolean;
  hasBaseline: boolean;
  isBest: boolean;
  isHot: boolean;
  actions: RowActions;
}

/** Remembered: while the cursor moves over 200 rows, two of them change. */
export const RunRow = memo(function RunRow({ id, name, columns, metric, group, actions, ...run }: RunRowProps) {
  const { figure, step, bestStep, isBaseline, isBest } = run;
  return (
    <tr
      data-hot={run.isHot || undefined}
      data-base={isBaseline || undefined}
      data-hidden={run.isHidden || undefined}
      data-grouped={group === null ? undefined : true}
      onPointerEnter={() => actions.point(group ?? id)}
    >
      <th scope="row">
        <span className={classes.run}>
          <Eye name={name} slot={run.slot} isHidden={run.isHidden} onHide={(is) => actions.hide([id], is)} />
          <StateIcon state={run.state} />
          <Link
            to="/jobs/$job"
            params={{ job: id }}
            className={classes.name}
            title={name}
            onFocus={() => actions.point(group ?? id)}
          >
            {name}
          </Link>
          {isBaseline ? <span className={classes.chip}>base</span> : null}
        </span>
      </th>
      {columns.map(({ path }) => (
        <td key={path} className={classes.number} title={run.settings.get(path)}>
          {run.settings.get(path) ?? <span className={classes.soft}>–</span>}
        </td>
      ))}
      <td
        className={isBest ? `${classes.number} ${classes.best}` : classes.number}
        title={bestStep === null ? undefined : `at step ${number(bestStep)}`}
      >
        {figure === null || metric === undefined ? <span className={classes.soft}>–</span> : shown(figure, metric)}
        {isBest ? <span className={classes.unseen}>, the best</span> : null}
      </td>
      {run.hasBaseline ? <Difference value={run.difference} metric={metric} /> : null}
      <td className={`${classes.number} ${classes.soft}`}>{step === null ? "–" : number(step)}</td>
      <td className={classes.actions}>
        <Button
          variant="subtle"
          size="xs"
          aria-pressed={isBaseline}
          aria-label={`Compare with ${name} as base`}
          title={isBaseline ? "Compare with no baseline" : "Compare the others with this run"}
          onClick={() => actions.base(id)}
        >
          base
        </Button>
        <Button
          variant="subtle"
          size="xs"
          aria-label={`Remove ${name} from the comparison`}
          title="Remove from the comparison"
          onClick={() => actions.remove(id)}
        >
          ×
        </Button>
      </td>
    </tr>
  );
});

interface GroupRowProps {
  group: RunGroup;
  columns: readonly Column[];
  /** The path of the setting that makes the groups. */
  by: string;
  metric: Described | undefined;
  slot: number;
  hidden: ReadonlySet<string>;
  hasBaseline: boolean;
  isHot: boolean;
  actions: RowActions;
}

export function GroupRow({ group, columns, by, metric, slot, hidden, hasBaseline, isHot, actions }: GroupRowProps) {
  const { key, value, runs, count, mean, low, high, difference } = group;
  const ids = runs.map(({ job }) => job.id);
  const name = `${endOf(by)} ${value}`;
  const isHidden = ids.every((id) => hidden.has(id));
  return (
    <tr
      className={classes.group}
      data-hot={isHot || undefined}
      data-hidden={isHidden || undefined}
      onPointerEnter={() => actions.point(key)}
    >
      <th scope="row">
        <span className={classes.run}>
          <Eye name={name} slot={slot} isHidden={isHidden} onHide={(is) => actions.hide(ids, is)} />
          <span className={classes.name} title={name}>
            {name}
          </span>
          <span className={classes.soft}>{runs.length === 1 ? "1 run" : `${runs.length} runs`}</span>
        </span>
      </th>
      <td colSpan={columns.length + 1} className={classes.number}>
        {mean === null || low === null || high === null || metric === undefined ? (
          <span className={classes.soft}>no figure</span>
        ) : (
          <>
            <span className={classes.soft}>
              {count < runs.length ? `of ${count}: ` : ""}
              {shown(low, metric)} to {shown(high, metric)} · mean{" "}
            </span>
            {shown(mean, metric)}
          </>
        )}
      </td>
      {hasBaseline ? <Difference value={difference} metric={metric} /> : null}
      <td />
      <td />
    </tr>
  );
}

interface EyeProps {
  name: string;
  slot: number;
  isHidden: boolean;
  onHide: (isHidden: boolean) => void;
}

/** The line of a row, which hides it. */
function Eye({ name, slot, isHidden, onHide }: EyeProps) {
  return (
    <Button
      variant="unstyled"
      className={classes.eye}
      aria-pressed={!isHidden}
      aria-label={`Show ${name}`}
      title={isHidden ? "Show its line" : "Hide its line"}
      onClick={() => onHide(!isHidden)}
    >
      <Swatch slot={slot} />
    </Button>
  );
}

/** Signed, with a triangle; a colour only where one direction is better. */
function Difference({ value, metric }: { value: number | null; metric: Described | undefined }) {
  if (value === null || metric === undefined) return <td />;
  const isBetter = metric.direction !== "none" && value !== 0 && value < 0 === (metric.direction === "lower");
  const tone = metric.direction === "none" || value === 0 ? undefined : isBetter ? "good" : "bad";
  const sign = value === 0 ? "± " : value < 0 ? "▼ −" : "▲ +";
  return (
    <td className={classes.number} data-tone={tone}>
      {sign}
      {shown(Number(Math.abs(value).toPrecision(3)), metric)}
    </td>
  );
}
