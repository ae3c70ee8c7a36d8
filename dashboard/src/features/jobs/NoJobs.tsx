/** A list without jobs: why, and what to do. */
import { Link } from "@tanstack/react-router";
import { useRights } from "@/api/rights";
import { Empty } from "@/components/Empty";
import classes from "./JobsPage.module.css";
import { ALL, filterWords, isFiltered, type JobsView, unfiltered } from "./view";

const SUBMIT = "lockstep submit examples/gpt.yaml";
/** What may be an id, and is too short to be looked for as one. */
const SHORT_ID = /^[0-9a-f-]{1,3}$/i;

export function NoJobsYet() {
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

export function NoneOfThese({ view, me }: { view: JobsView; me: string | null }) {
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
  if (view.owner === me && !isFiltered({ ...view, owner: undefined })) {
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
    <Empty title="No job matches this filter">
      <p className={classes.filter}>{filterWords(view)}</p>
      {SHORT_ID.test(view.filter ?? "") ? <p>An id is found by 4 or more characters of its beginning or end.</p> : null}
      <p>
        <Link to="/jobs" search={unfiltered(view)}>
          Clear the filter
        </Link>
      </p>
    </Empty>
  );
}
