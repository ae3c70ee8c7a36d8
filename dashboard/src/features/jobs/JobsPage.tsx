/** All jobs: found by filters that live in the address, told apart at a glance, and acted on several at a time. */
import { Link, useNavigate, useRouter, useSearch } from "@tanstack/react-router";
import { useEffect } from "react";
import { useCaller } from "@/api/caller";
import type { JobView } from "@/api/generated";
import { useRights } from "@/api/rights";
import { Empty } from "@/components/Empty";
import { Failed } from "@/components/Failed";
import { SkeletonRows } from "@/components/SkeletonRows";
import { PageStale } from "@/components/Stale";
import { usePageTitle } from "@/components/usePageTitle";
import { ownerToStartWith } from "@/lib/owner";
import { ChosenBar } from "./ChosenBar";
import { Filters } from "./Filters";
import classes from "./JobsPage.module.css";
import { JobTable } from "./JobTable";
import { Pages } from "./Pages";
import { useChosen } from "./useChosen";
import { useJobs, useMainSeries } from "./useJobs";
import { useSuggestions } from "./useSuggestions";
import { ALL, filtersSet, isFiltered, type JobsView, settled } from "./view";

const NONE: readonly JobView[] = [];
const SUBMIT = "lockstep submit examples/gpt.yaml";
/** What may be an id, and is too short to be looked for as one. */
const SHORT_ID = /^[0-9a-f-]{1,3}$/i;

export function JobsPage() {
  usePageTitle("Jobs");
  const asked = useSearch({ from: "/jobs" });
  const { data: caller, isPending } = useCaller();
  const me = caller === undefined ? null : ownerToStartWith(caller);
  const view = settled(asked, me);
  const router = useRouter();
  const navigate = useNavigate();
  useEffect(() => {
    // The list is still there while the chunk of a page that was chosen loads: that choice is not undone.
    const isLeft = router.latestLocation.pathname !== "/jobs";
    if (view !== asked && !isLeft) void navigate({ to: "/jobs", search: view, replace: true });
  }, [view, asked, navigate, router]);
  const { data, error, isPlaceholderData, refetch } = useJobs(view, asked.owner !== undefined || !isPending);
  const jobs = data?.items ?? NONE;
  const series = useMainSeries(jobs);
  const { chosen, choose, clear } = useChosen(view, jobs, isPlaceholderData);
  const isFirstVisit = data !== undefined && jobs.length === 0 && !isFiltered(view) && view.cursor === undefined;
  const suggestions = useSuggestions(jobs);
  const go = (next: JobsView, isSame = false) => void navigate({ to: "/jobs", search: next, replace: isSame });
  return (
    <>
      <h1 className={classes.title}>Jobs</h1>
      <PageStale of={["jobs"]} />
      {isFirstVisit ? null : <Filters view={view} me={me} suggestions={suggestions} go={go} />}
      {data === undefined && error !== null ? <Failed error={error} retry={() => void refetch()} /> : null}
      {data === undefined && error === null ? <SkeletonRows label="The jobs are loading" /> : null}
      {isFirstVisit ? <NoJobsYet /> : null}
      {data !== undefined && jobs.length === 0 && !isFirstVisit ? <NoneOfThese view={view} me={me} /> : null}
      {jobs.length === 0 ? null : (
        <div className={isPlaceholderData ? classes.old : undefined}>
          <JobTable jobs={jobs} series={series} view={view} chosen={chosen} choose={choose} />
          <Pages view={view} jobs={jobs} next={data?.next_cursor ?? null} total={data?.total ?? 0} go={go} />
        </div>
      )}
      <ChosenBar chosen={[...chosen.values()]} clear={clear} />
    </>
  );
}

function NoJobsYet() {
  const submits = useRights().has("job.submit");
  return (
    <Empty title="No jobs yet" command={submits ? SUBMIT : undefined}>
      <p>
        Lockstep trains models on your GPUs. You say how large a batch is, and it stays that large on any number of
        them: the effective batch is a promise.
      </p>
      {submits ? (
        <p>
          <Link to="/submit">Write the first job here</Link>, or submit one from a terminal:
        </p>
      ) : null}
    </Empty>
  );
}

function NoneOfThese({ view, me }: { view: JobsView; me: string | null }) {
  const filters = filtersSet(view);
  const { cursor, ...first } = view;
  if (cursor !== undefined) {
    return (
      <Empty title="No more jobs">
        <p>
          <Link to="/jobs" search={first}>
            First page
          </Link>
        </p>
      </Empty>
    );
  }
  if (view.owner === me && filters.length === 1) {
    return (
      <Empty title="You have no jobs yet" command={SUBMIT}>
        <p>
          <Link to="/submit">Write the first one here</Link>, submit one from a terminal, or see{" "}
          <Link to="/jobs" search={{ owner: ALL }}>
            the jobs of all people
          </Link>
          .
        </p>
      </Empty>
    );
  }
  return (
    <Empty title="No job matches these filters">
      <ul className={classes.filters}>
        {filters.map(({ name, value, without }) => (
          <li key={name}>
            {name} <strong>{value}</strong>
            {filters.length === 1 ? null : (
              <Link to="/jobs" search={without} aria-label={`Leave out ${name} ${value}`}>
                leave out
              </Link>
            )}
          </li>
        ))}
      </ul>
      {SHORT_ID.test(view.search ?? "") ? <p>An id is found by 4 or more characters of its beginning or end.</p> : null}
      <p>
        <Link to="/jobs" search={{ owner: ALL }}>
          Show all jobs
        </Link>
      </p>
    </Empty>
  );
}
