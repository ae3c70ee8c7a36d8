/**
 * A job's log: filter, search, follow, jump to the first error, link to a line, download.
 *
 * The filter is in the page's address (`view`), so a link shows the same; wrapping and times are
 * settings of this browser.
 */
import { useMutation } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useState } from "react";
import { useKeys } from "@/app/keys";
import { useRemembered } from "@/components/useRemembered";
import { FIRST_ERROR, filterOf, type LogView, writePlace } from "@/lib/log-view";
import { findFirstError } from "./first-error";
import { LogPane } from "./LogPane";
import { LogToolbar } from "./LogToolbar";
import classes from "./LogViewer.module.css";

export interface LogViewerProps {
  jobId: string;
  jobName: string;
  /** Number of attempts. */
  attempts: number;
  ranks: number;
  view: LogView;
  onView: (view: LogView) => void;
  hrefOf: (view: LogView) => string;
  /** It fills what it is in, instead of a height of its own. */
  fills?: boolean;
}

export function LogViewer({ jobId, jobName, attempts, ranks, view, onView, hrefOf, fills }: LogViewerProps) {
  const [following, setFollowing] = useState(view.line === undefined);
  const [wrap, setWrap] = useRemembered("lockstep.logs.wrap");
  const [showTime, setShowTime] = useRemembered("lockstep.logs.times");
  const { attempt, rank, stream, search } = view;
  const filter = useMemo(() => filterOf({ attempt, rank, stream, search }), [attempt, rank, stream, search]);

  const firstError = useMutation({
    mutationFn: () => findFirstError(jobId, filterOf({ attempt, rank, stream })),
    onSuccess: ({ line }) => {
      if (line !== null) setFollowing(false);
      onView({ attempt, rank, stream, line: line === null ? undefined : writePlace(line) });
    },
    onError: () => onView({ ...view, line: undefined }),
  });
  const { mutate: seekError, isPending: isSeeking } = firstError;
  const isAskedByAddress = view.line === FIRST_ERROR;
  useEffect(() => {
    if (isAskedByAddress) seekError();
  }, [isAskedByAddress, seekError]);

  const choose = useCallback(
    (chosen: LogView) => {
      // Other lines are another list: it begins at its end, and is followed again.
      setFollowing(true);
      onView(chosen);
    },
    [onView],
  );
  const follow = useCallback(
    (next: boolean) => {
      setFollowing(next);
      if (next && view.line !== undefined) onView({ ...view, line: undefined });
    },
    [onView, view],
  );
  useKeys({ f: () => follow(!following) });

  return (
    <div className={classes.viewer} data-fills={fills}>
      <LogToolbar
        jobId={jobId}
        jobName={jobName}
        attempts={attempts}
        ranks={ranks}
        view={view}
        filter={filter}
        onChoose={choose}
        wrap={wrap}
        onWrap={setWrap}
        showTime={showTime}
        onShowTime={setShowTime}
        isSeeking={isSeeking}
        onFirstError={seekError}
      />
      <p className={classes.said} role="status">
        {firstError.data?.words ?? (firstError.error === null ? "" : firstError.error.message)}
      </p>
      <LogPane
        key={JSON.stringify([jobId, filter])}
        jobId={jobId}
        filter={filter}
        view={view}
        severalAttempts={attempts > 1 && attempt === undefined}
        waits={isAskedByAddress}
        following={following}
        onFollow={follow}
        wrap={wrap}
        showTime={showTime}
        onView={onView}
        onChoose={choose}
        hrefOf={hrefOf}
      />
    </div>
  );
}
