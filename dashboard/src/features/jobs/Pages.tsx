/** From page to page of the list. Each page has an address of its own. */
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { JobView } from "@/api/generated";
import { Failed } from "@/components/Failed";
import { number } from "@/lib/format";
import { counted } from "@/lib/resources";
import classes from "./Pages.module.css";
import { usePageBefore } from "./useJobs";
import type { JobsView } from "./view";

interface Props {
  view: JobsView;
  jobs: readonly JobView[];
  next: string | null;
  /** Jobs on all pages, as far as the service counts. */
  total: number;
  go: (view: JobsView) => void;
}

/** The service counts no further. */
const COUNTED_MAX = 10_000;

function totalWords(total: number): string {
  return total >= COUNTED_MAX ? `${number(total)} jobs or more` : `${number(total)} jobs`;
}

export function Pages({ view, jobs, next, total, go }: Props) {
  const before = usePageBefore();
  const [error, setError] = useState<unknown>(null);
  const { cursor, ...first } = view;
  const [back, on] = view.order === "oldest" ? ["Older", "Newer"] : ["Newer", "Older"];
  const goBack = async () => {
    try {
      setError(null);
      go(await before(view, jobs[0]?.id ?? ""));
    } catch (failure) {
      setError(failure);
    }
  };
  if (cursor === undefined && next === null) {
    return <p className={classes.count}>{counted(jobs.length, "job")}</p>;
  }
  return (
    <nav className={classes.pages} aria-label="Pages of the list">
      {cursor === undefined ? null : (
        <>
          <Link to="/jobs" search={first}>
            First page
          </Link>
          <button type="button" onClick={() => void goBack()}>
            ← {back}
          </button>
        </>
      )}
      <span className={classes.count}>
        {number(jobs.length)} of {totalWords(total)}
      </span>
      {next === null ? null : (
        <Link to="/jobs" search={{ ...view, cursor: next }}>
          {on} →
        </Link>
      )}
      {error === null ? null : <Failed error={error} />}
    </nav>
  );
}
