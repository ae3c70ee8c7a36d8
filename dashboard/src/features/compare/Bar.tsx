/** What is compared and how: metric, colours, groups, and more jobs. */
import { useId } from "react";
import { Button } from "@/components/Button";
import { Select } from "@/components/Select";
import { Stale } from "@/components/Stale";
import { hasEnded } from "@/lib/ended";
import { counted } from "@/lib/resources";
import classes from "./Bar.module.css";
import { GRADIENT } from "./colouring";
import { Picker } from "./Picker";
import { OF_METRIC } from "./scatter";
import { type Column, endOf, LABEL } from "./settings";
import type { Comparison } from "./useComparison";

const STALE = [
  ["jobs", "compared"],
  ["series", "summaries"],
];

export function Bar({ comparison }: { comparison: Comparison }) {
  const { jobs, columns, view, metric, ramp, groups, summaries, hidden, change, referenceOf } = comparison;
  const live = jobs.filter((job) => !hasEnded(job)).length;
  const known = new Set([...view.jobs, ...jobs.map(({ id }) => id)]);
  return (
    <div className={classes.bar}>
      <h1>Compare</h1>
      {jobs.length > 0 ? (
        <span className={classes.soft}>
          {counted(jobs.length, "run")}
          {live > 0 ? `, ${live} not ended` : ""}
        </span>
      ) : null}
      <Picker chosen={known} onAdd={(id) => change({ jobs: [...view.jobs, id] })} />
      <Stale of={STALE} />
      {jobs.length === 0 ? null : (
        <div className={classes.choices}>
          <label>
            Metric
            <Select size="sm" value={metric?.name ?? ""} onChange={(event) => change({ metric: event.target.value })}>
              {metric === undefined ? <option value="">none yet</option> : null}
              {summaries.series.map(({ name }) => (
                <option key={name}>{name}</option>
              ))}
            </Select>
          </label>
          <BySetting
            title="Colour"
            none={jobs.length > 24 ? "grey" : "by run"}
            columns={columns}
            value={view.colour}
            isDisabled={groups !== null}
            onChange={(colour) => change({ colour })}
          />
          {ramp === null ? null : (
            <span className={classes.ramp}>
              {ramp.low} <i style={{ background: GRADIENT }} /> {ramp.high}
            </span>
          )}
          <BySetting
            title="Group"
            none="none"
            columns={columns}
            value={view.group}
            onChange={(group) => change({ group })}
          />
          <BySetting
            title="Scatter"
            none="none"
            columns={columns}
            metrics={summaries.series.flatMap(({ name }) => (name === metric?.name ? [] : [name]))}
            value={view.scatter}
            onChange={(scatter) => change({ scatter })}
          />
          {view.baseline === undefined ? null : (
            <Button size="sm" onClick={() => change({ baseline: undefined })} title="Compare with no baseline">
              Baseline: {jobs.find(({ id }) => referenceOf(id) === view.baseline)?.name ?? view.baseline} ×
            </Button>
          )}
          {hidden.size > 0 ? (
            <Button size="sm" onClick={() => change({ hidden: [] })}>
              Show {hidden.size} hidden
            </Button>
          ) : jobs.length > 1 ? (
            <Button size="sm" onClick={() => change({ hidden: view.jobs })}>
              Hide all
            </Button>
          ) : null}
        </div>
      )}
    </div>
  );
}

interface BySettingProps {
  title: string;
  none: string;
  columns: readonly Column[];
  /** Metrics that can be chosen, too. */
  metrics?: readonly string[];
  value: string | undefined;
  isDisabled?: boolean;
  onChange: (path: string | undefined) => void;
}

function BySetting({ title, none, columns, metrics = [], value, isDisabled = false, onChange }: BySettingProps) {
  const id = useId();
  const isKnown =
    value === undefined ||
    columns.some(({ path }) => path === value) ||
    metrics.some((name) => value === `${OF_METRIC}${name}`);
  return (
    <label htmlFor={id}>
      {title}
      <Select
        size="sm"
        id={id}
        value={value ?? ""}
        disabled={isDisabled}
        onChange={(event) => onChange(event.target.value === "" ? undefined : event.target.value)}
      >
        <option value="">{none}</option>
        {columns.map(({ path, title: name }) => (
          <option key={path} value={path}>
            {path.startsWith(LABEL) ? `label ${name}` : name}
          </option>
        ))}
        {metrics.map((name) => (
          <option key={name} value={`${OF_METRIC}${name}`}>
            {name}
          </option>
        ))}
        {isKnown ? null : <option value={value}>{endOf(value)}</option>}
      </Select>
    </label>
  );
}
