/** Compare: the curves of up to twenty jobs over each other, their figures, and the settings in which they differ. */
import { getRouteApi, Link } from "@tanstack/react-router";
import { LookedAt } from "@/components/charts/LookedAt";
import { Empty } from "@/components/Empty";
import { Failed } from "@/components/Failed";
import { usePageTitle } from "@/components/usePageTitle";
import { readLook } from "@/lib/look";
import { counted } from "@/lib/resources";
import classes from "./ComparePage.module.css";
import { FiguresTable } from "./FiguresTable";
import { Legend } from "./Legend";
import { Picker } from "./Picker";
import { SettingsTable } from "./SettingsTable";
import { useComparison } from "./useComparison";

const route = getRouteApi("/compare");

export function ComparePage() {
  const { chosen, jobs, slots, hidden, isPending, missing, error, retry, choose, hide, remove } = useComparison();
  usePageTitle(chosen.length === 0 ? "Compare" : `Compare ${counted(chosen.length, "job")}`);
  const view = route.useSearch();
  const navigate = route.useNavigate();
  const add = (id: string) => choose([...chosen, id]);
  return (
    <div className={classes.page}>
      <div className={classes.head}>
        <h1>Compare</h1>
        <Picker chosen={new Set([...chosen, ...jobs.map(({ id }) => id)])} onAdd={add} />
      </div>
      {missing.map((reference) => (
        <p key={reference} className={classes.missing} role="status">
          There is no job <code>{reference}</code>.{" "}
          <button type="button" onClick={() => choose(chosen.filter((each) => each !== reference))}>
            Leave it out
          </button>
        </p>
      ))}
      {error ? <Failed error={error} retry={retry} /> : null}
      {chosen.length === 0 ? (
        <Empty title="Choose the jobs to compare">
          <p>
            In <Link to="/jobs">the list of jobs</Link>, mark two to twenty of them and press Compare. Or add them here
            by their name.
          </p>
        </Empty>
      ) : null}
      {jobs.length > 0 ? (
        <>
          <Legend jobs={jobs} slots={slots} hidden={hidden} onHide={hide} onRemove={remove} />
          {jobs.length === 1 && !isPending ? (
            <p className={classes.hint}>One job so far: add another to see them over each other.</p>
          ) : null}
          <div className={classes.tables}>
            <FiguresTable jobs={jobs} slots={slots} />
            {jobs.length > 1 ? <SettingsTable jobs={jobs} slots={slots} /> : null}
          </div>
          <LookedAt
            address={readLook({ ...view })}
            onLook={(look) =>
              void navigate({ search: (before) => ({ ...before, ...look }), replace: true, resetScroll: false })
            }
            jobs={jobs}
            slots={slots}
            hidden={hidden}
          />
        </>
      ) : null}
    </div>
  );
}
