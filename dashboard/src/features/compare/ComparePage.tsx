/** Compare: a table of up to 200 runs beside their curves, which are coupled with it. */
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { Button } from "@/components/Button";
import { LookedAt } from "@/components/charts/LookedAt";
import { Empty } from "@/components/Empty";
import { Failed } from "@/components/Failed";
import { usePageTitle } from "@/components/usePageTitle";
import { COMPARED_MAX } from "@/lib/compared";
import { readLook } from "@/lib/look";
import { counted } from "@/lib/resources";
import { Bar } from "./Bar";
import classes from "./ComparePage.module.css";
import { RunTable } from "./RunTable";
import { ScatterCard } from "./ScatterCard";
import { type Comparison, useComparison } from "./useComparison";

const route = getRouteApi("/compare");

export function ComparePage() {
  const comparison = useComparison();
  const { jobs, isPending, missing, error, retry, view, change } = comparison;
  const [hot, setHot] = useState<string | null>(null);
  usePageTitle(view.jobs.length === 0 ? "Compare" : `Compare ${counted(view.jobs.length, "job")}`);
  return (
    <div className={classes.page}>
      <Bar comparison={comparison} />
      {missing.map((reference) => (
        <p key={reference} className={classes.missing} role="status">
          There is no job <code>{reference}</code>.{" "}
          <Button variant="link" onClick={() => change({ jobs: view.jobs.filter((each) => each !== reference) })}>
            Leave it out
          </Button>
        </p>
      ))}
      {error ? <Failed error={error} retry={retry} /> : null}
      {view.jobs.length === 0 ? (
        <Empty title="Choose the jobs to compare">
          <p>
            In <Link to="/jobs">the list of jobs</Link>, mark two to {COMPARED_MAX} of them and press Compare. Or add
            them here by their name.
          </p>
        </Empty>
      ) : null}
      {jobs.length > 0 ? (
        <>
          {jobs.length === 1 && !isPending ? (
            <p className={classes.hint}>One job so far: add another to see them over each other.</p>
          ) : null}
          <div className={classes.two}>
            <div className={classes.runs}>
              <RunTable comparison={comparison} hot={hot} onHot={setHot} />
            </div>
            <div className={classes.charts}>
              {comparison.scatter === null ? null : (
                <ScatterCard scatter={comparison.scatter} slots={comparison.slots} hot={hot} onHot={setHot} />
              )}
              <ComparedCharts comparison={comparison} hot={hot} onHot={setHot} />
            </div>
          </div>
        </>
      ) : null}
    </div>
  );
}

interface ComparedChartsProps {
  comparison: Comparison;
  hot: string | null;
  onHot: (key: string | null) => void;
}

function ComparedCharts({ comparison, hot, onHot }: ComparedChartsProps) {
  const { jobs, slots, hidden, summaries, metric, drawnGroups, baseline } = comparison;
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const groups = useMemo(
    () => drawnGroups.map((group) => ({ ...group, jobs: group.jobs.filter((id) => !hidden.has(id)) })),
    [drawnGroups, hidden],
  );
  // A row of a group's run points at the group, which is what charts draw.
  const drawn = hot === baseline && groups.length > 0 ? null : hot;
  return (
    <LookedAt
      address={readLook({ ...search })}
      onLook={(look) =>
        void navigate({ search: (before) => ({ ...before, ...look }), replace: true, resetScroll: false })
      }
      jobs={jobs}
      slots={slots}
      hidden={hidden}
      summaries={summaries}
      first={metric?.name}
      groups={groups}
      hot={drawn}
      onHot={onHot}
    />
  );
}
