/** One table of all runs: legend, settings and figures. A row is a run; with groups, each group has a row before its runs. */
import { memo, type ReactNode, useCallback, useMemo, useRef } from "react";
import { Button } from "@/components/Button";
import type { Described } from "@/lib/series";
import { GroupRow, RunRow } from "./Row";
import classes from "./RunTable.module.css";
import type { Comparison } from "./useComparison";
import { columnOf, type Sort } from "./view";

/** Settings beyond these are left out: a row of hundreds of cells is no row. */
export const COLUMNS_MAX = 30;

interface RunTableProps {
  comparison: Comparison;
  hot: string | null;
  onHot: (key: string | null) => void;
}

export interface RowActions {
  hide: (ids: readonly string[], isHidden: boolean) => void;
  base: (id: string) => void;
  remove: (id: string) => void;
  point: (key: string | null) => void;
}

export function RunTable({ comparison, hot, onHot }: RunTableProps) {
  const { runs, groups, columns: all, metric, sort, baseline, hidden, slots, change, view } = comparison;
  const columns = useMemo(() => all.slice(0, COLUMNS_MAX), [all]);
  const actions = useActions(comparison, onHot);
  const onSort = (by: string) =>
    change({ sort: { by, isDescending: sort?.by === by ? !sort.isDescending : false } satisfies Sort });
  const best = bestOf(comparison);
  const rowOf = (run: (typeof runs)[number], group: string | null) => (
    <RunRow
      key={run.job.id}
      id={run.job.id}
      name={run.job.name}
      state={run.job.state}
      figure={run.figure}
      difference={run.difference}
      step={run.summary?.last_step ?? null}
      bestStep={metric?.direction === "none" ? null : (run.summary?.best_step ?? null)}
      settings={run.settings}
      columns={columns}
      metric={metric}
      slot={slots.get(run.job.id) ?? 0}
      group={group}
      isHidden={hidden.has(run.job.id)}
      isBaseline={run.job.id === baseline}
      hasBaseline={baseline !== undefined}
      isBest={run.figure !== null && run.figure === best}
      isHot={hot !== null && (hot === run.job.id || hot === group)}
      actions={actions}
    />
  );
  return (
    <div className={classes.panel}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached by keys */}
      <section className={classes.scroll} aria-label="Runs" tabIndex={0}>
        <table className={classes.table}>
          <caption className={classes.unseen}>
            Runs with their lines, the settings in which they differ, and their figures
          </caption>
          <thead>
            <tr>
              <Head by="name" sort={sort} onSort={onSort}>
                Run
              </Head>
              {columns.map(({ path, title }) => (
                <Head key={path} by={columnOf(path)} sort={sort} onSort={onSort} isNumber title={path}>
                  {title}
                </Head>
              ))}
              <Head by="figure" sort={sort} onSort={onSort} isNumber title={metric?.name}>
                {titleOf(metric)}
              </Head>
              {baseline === undefined ? null : (
                <Head by="difference" sort={sort} onSort={onSort} isNumber title="Difference to the baseline">
                  vs base
                </Head>
              )}
              <Head by="step" sort={sort} onSort={onSort} isNumber>
                step
              </Head>
              <th scope="col">
                <span className={classes.unseen}>Baseline and remove</span>
              </th>
            </tr>
          </thead>
          <tbody onPointerLeave={() => onHot(null)}>
            {groups === null
              ? runs.map((run) => rowOf(run, null))
              : groups.flatMap((group) => [
                  <GroupRow
                    key={group.key}
                    group={group}
                    columns={columns}
                    by={view.group ?? ""}
                    metric={metric}
                    slot={slotOf(comparison, group.key)}
                    hidden={hidden}
                    hasBaseline={baseline !== undefined}
                    isHot={hot === group.key}
                    actions={actions}
                  />,
                  ...group.runs.map((run) => rowOf(run, group.key)),
                ])}
          </tbody>
        </table>
      </section>
      {all.length > COLUMNS_MAX ? (
        <p className={classes.note}>{all.length - COLUMNS_MAX} more settings differ</p>
      ) : null}
    </div>
  );
}

interface HeadProps {
  by: string;
  sort: Sort | null;
  onSort: (by: string) => void;
  isNumber?: boolean;
  title?: string | undefined;
  children: ReactNode;
}

const Head = memo(function Head({ by, sort, onSort, isNumber = false, title, children }: HeadProps) {
  const isSorted = sort?.by === by;
  return (
    <th
      scope="col"
      className={isNumber ? classes.number : undefined}
      aria-sort={isSorted ? (sort.isDescending ? "descending" : "ascending") : undefined}
      title={title}
    >
      <Button variant="unstyled" className={classes.sort} onClick={() => onSort(by)}>
        {children}
        {isSorted ? <span aria-hidden>{sort.isDescending ? " ▼" : " ▲"}</span> : null}
      </Button>
    </th>
  );
});

/** "best loss": the group of a metric is in the title of the column. */
function titleOf(metric: Described | undefined): string {
  if (metric === undefined) return "figure";
  const end = metric.name.split("/").at(-1) as string;
  return `${metric.direction === "none" ? "last" : "best"} ${end}`;
}

/** Of all runs with a figure; null without a direction, and of a single one. */
function bestOf({ runs, metric, hidden }: Comparison): number | null {
  const figures = runs.flatMap(({ job, figure }) => (figure === null || hidden.has(job.id) ? [] : [figure]));
  if (metric === undefined || metric.direction === "none" || figures.length < 2) return null;
  return metric.direction === "lower" ? Math.min(...figures) : Math.max(...figures);
}

function slotOf({ drawnGroups }: Comparison, key: string): number {
  return drawnGroups.find((group) => group.key === key)?.slot ?? 0;
}

/** The same functions always: a row that has nothing new is not rendered. */
function useActions(comparison: Comparison, onHot: (key: string | null) => void): RowActions {
  const latest = useRef(comparison);
  latest.current = comparison;
  const references = useCallback((ids: readonly string[]) => ids.map((id) => latest.current.referenceOf(id)), []);
  return useMemo(
    () => ({
      hide: (ids, isHidden) => {
        const { view, change } = latest.current;
        const named = references(ids);
        const others = view.hidden.filter((each) => !named.includes(each));
        change({ hidden: isHidden ? [...others, ...named] : others });
      },
      base: (id) => {
        const { baseline, change } = latest.current;
        change({ baseline: id === baseline ? undefined : references([id])[0] });
      },
      remove: (id) => {
        const { view, change } = latest.current;
        const [named] = references([id]);
        change({ jobs: view.jobs.filter((each) => each !== named) });
      },
      point: onHot,
    }),
    [references, onHot],
  );
}
