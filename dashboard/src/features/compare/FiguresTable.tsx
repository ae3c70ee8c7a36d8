/** One metric of all compared jobs in figures: last, lowest, highest and best, sorted by any of them. */
import { useState } from "react";
import type { JobView } from "@/api/generated";
import { useLive, useSummaries } from "@/api/series";
import { figure } from "@/components/charts/CardFigures";
import { Swatch } from "@/components/charts/Swatch";
import { number } from "@/lib/format";
import { type Column, mainMetric, rowsOf, sorted, winners } from "./ranking";
import { Scroller } from "./Scroller";
import classes from "./Tables.module.css";

const COLUMNS: readonly { column: Column; title: string }[] = [
  { column: "last", title: "Last" },
  { column: "min", title: "Lowest" },
  { column: "max", title: "Highest" },
  { column: "best", title: "Best" },
];

interface FiguresTableProps {
  jobs: readonly JobView[];
  slots: ReadonlyMap<string, number>;
}

export function FiguresTable({ jobs, slots }: FiguresTableProps) {
  const { names, byJob } = useSummaries(jobs, useLive(jobs));
  const [chosen, setChosen] = useState<string>();
  const [order, setOrder] = useState<{ column: Column; isDescending: boolean } | null>(null);
  const metric = chosen !== undefined && names.includes(chosen) ? chosen : mainMetric(names);
  if (metric === undefined) return null;
  const ids = jobs.map(({ id }) => id);
  const rows = rowsOf(metric, ids, byJob);
  const best = winners(metric, rows);
  const unit = [...byJob.values()].find((series) => series.has(metric))?.get(metric)?.unit ?? "";
  const shown = order === null ? rows : sorted(rows, order.column, order.isDescending);
  const nameOf = new Map(jobs.map(({ id, name }) => [id, name]));
  return (
    <section className={classes.section} aria-labelledby="figures">
      <div className={classes.head}>
        <h2 id="figures">Figures</h2>
        <label>
          of
          <select value={metric} onChange={(event) => setChosen(event.target.value)}>
            {names.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      </div>
      <Scroller label="Figures, as a table">
        <table className={classes.table}>
          <thead>
            <tr>
              <th scope="col">Job</th>
              {COLUMNS.map(({ column, title }) => (
                <th key={column} scope="col" className={classes.number} aria-sort={sortOf(order, column)}>
                  <button
                    type="button"
                    className={classes.sort}
                    onClick={() =>
                      setOrder({ column, isDescending: order?.column === column ? !order.isDescending : false })
                    }
                  >
                    {title}
                    {order?.column === column ? (order.isDescending ? " ↓" : " ↑") : ""}
                  </button>
                </th>
              ))}
              <th scope="col" className={classes.number}>
                Step
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.map(({ job, figures, best: own }) => (
              <tr key={job}>
                <th scope="row">
                  <Swatch slot={slots.get(job) ?? 0} /> {nameOf.get(job)}
                </th>
                <td className={classes.number}>{figures ? figure(figures.last, unit) : "–"}</td>
                <td className={classes.number}>{figures ? figure(figures.min, unit) : "–"}</td>
                <td className={classes.number}>{figures ? figure(figures.max, unit) : "–"}</td>
                <td className={`${classes.number} ${best.has(job) ? classes.best : ""}`}>
                  {best.has(job) ? "✓ " : ""}
                  {own === null ? "–" : figure(own, unit)}
                </td>
                <td className={`${classes.number} ${classes.step}`}>{figures ? number(figures.lastStep) : "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroller>
    </section>
  );
}

function sortOf(order: { column: Column; isDescending: boolean } | null, column: Column) {
  if (order?.column !== column) return undefined;
  return order.isDescending ? "descending" : "ascending";
}
