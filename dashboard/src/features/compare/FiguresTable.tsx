/** One metric of all compared jobs in figures: last, lowest, highest and best, sorted by any of them. */
import { useState } from "react";
import type { JobView } from "@/api/generated";
import { useLive, useSummaries } from "@/api/series";
import { Swatch } from "@/components/charts/Swatch";
import { number } from "@/lib/format";
import { figure } from "@/lib/series";
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
  const { series: all, byJob } = useSummaries(jobs, useLive(jobs));
  const [chosen, setChosen] = useState<string>();
  const [order, setOrder] = useState<{ column: Column; isDescending: boolean } | null>(null);
  const series = all.find(({ name }) => name === chosen) ?? all.find(({ name }) => name === mainMetric(all));
  if (series === undefined) return null;
  const metric = series.name;
  const ids = jobs.map(({ id }) => id);
  const rows = rowsOf(metric, ids, byJob);
  const best = winners(series, rows);
  const shown = order === null ? rows : sorted(rows, order.column, order.isDescending);
  const shownIn = (value: number | null | undefined) => (value == null ? "–" : figure(value, series));
  const nameOf = new Map(jobs.map(({ id, name }) => [id, name]));
  return (
    <section className={classes.section} aria-labelledby="figures">
      <div className={classes.head}>
        <h2 id="figures">Figures</h2>
        <label>
          of
          <select value={metric} onChange={(event) => setChosen(event.target.value)}>
            {all.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>{" "}
          {series.unit}
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
            {shown.map(({ job, summary }) => (
              <tr key={job}>
                <th scope="row">
                  <Swatch slot={slots.get(job) ?? 0} /> {nameOf.get(job)}
                </th>
                <td className={classes.number}>{shownIn(summary?.last)}</td>
                <td className={classes.number}>{shownIn(summary?.min)}</td>
                <td className={classes.number}>{shownIn(summary?.max)}</td>
                <td
                  className={`${classes.number} ${best.has(job) ? classes.best : ""}`}
                  title={summary?.best_step == null ? undefined : `at step ${number(summary.best_step)}`}
                >
                  {best.has(job) ? "✓ " : ""}
                  {shownIn(summary?.best)}
                </td>
                <td className={`${classes.number} ${classes.step}`}>{summary ? number(summary.last_step) : "–"}</td>
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
