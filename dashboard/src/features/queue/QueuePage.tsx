/** Who goes next, what they wait for, and what is free: in the order and the words of the service. */
import { Link, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { useCaller } from "@/api/caller";
import { getShares, type JobView, listNodes, listQueue, type ShareView } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { useRights } from "@/api/rights";
import { Button } from "@/components/Button";
import { Clock } from "@/components/Clock";
import { Empty } from "@/components/Empty";
import { Failed } from "@/components/Failed";
import { SkeletonRows } from "@/components/SkeletonRows";
import { PageStale } from "@/components/Stale";
import { usePageTitle } from "@/components/usePageTitle";
import { freeSentence } from "@/lib/resources";
import { ProjectSection } from "./ProjectSection";
import classes from "./QueuePage.module.css";
import { QueueTable } from "./QueueTable";
import { sectionsOf } from "./sections";
import { queueSentence } from "./words";

const NONE: readonly ShareView[] = [];

export function QueuePage() {
  usePageTitle("Queue");
  const { project } = useSearch({ from: "/queue" });
  const [pages, setPages] = useState(1);
  const key = ["queue", project ?? "", pages];
  const queue = usePolled({
    key,
    fetch: (signal) => firstPages(pages, project, signal),
    seconds: 5,
    keepPrevious: pages > 1,
  });
  const hasMore = queue.data?.next_cursor != null;
  const nodes = usePolled({
    key: ["nodes"],
    fetch: (signal) => listNodes({ signal, throwOnError: true }),
    seconds: 5,
  });
  const caller = useCaller();
  const submits = useRights().has("job.submit");
  const isTeam = caller.data?.is_alone === false;
  const shares = usePolled({
    key: ["shares"],
    fetch: (signal) => getShares({ signal, throwOnError: true }),
    seconds: 10,
    enabled: isTeam,
  });
  const isAwaited = caller.isPending || (isTeam && shares.isPending);
  const jobs = isAwaited ? undefined : queue.data?.items;
  return (
    <>
      <h1 className={classes.title}>Queue</h1>
      <PageStale of={key} />
      <p className={classes.summary}>
        {jobs === undefined || jobs.length === 0 ? null : <strong>{queueSentence(jobs.length, hasMore)} </strong>}
        {nodes.data === undefined ? null : (
          <>
            {freeSentence(nodes.data.items)} <Link to="/cluster">All nodes</Link>
          </>
        )}
      </p>
      {jobs === undefined && queue.error !== null ? (
        <Failed error={queue.error} retry={() => void queue.refetch()} />
      ) : null}
      {jobs === undefined && queue.error === null ? <SkeletonRows label="The queue is loading" /> : null}
      {jobs?.length === 0 && project !== undefined ? (
        <Empty title="Nothing waits in this project">
          <p>
            <Link to="/queue">Show the whole queue</Link>
          </p>
        </Empty>
      ) : null}
      {jobs?.length === 0 && project === undefined ? (
        <Empty title="Nothing waits" command={submits ? "lockstep submit examples/gpt.yaml" : undefined}>
          <p>
            A job that is submitted now starts as soon as its devices are free.{" "}
            {submits ? (
              <>
                <Link to="/submit">Write one here</Link>, or submit one from a terminal:
              </>
            ) : null}
          </p>
        </Empty>
      ) : null}
      {jobs === undefined || jobs.length === 0 ? null : (
        <Clock of={key} everySeconds={10}>
          <Waiting jobs={jobs} shares={shares.data?.items ?? NONE} isWhole={project === undefined} />
        </Clock>
      )}
      {hasMore && jobs !== undefined ? (
        <p>
          <Button disabled={queue.isPlaceholderData} onClick={() => setPages(pages + 1)}>
            Show more jobs that wait
          </Button>
        </p>
      ) : null}
    </>
  );
}

/** The first pages as one. The queue may move between two of them: a job that comes twice counts once. */
async function firstPages(pages: number, project: string | undefined, signal: AbortSignal) {
  const found = new Map<string, JobView>();
  let cursor: string | null | undefined;
  for (let page = 0; page < pages && cursor !== null; page++) {
    const query = { project, cursor: cursor === undefined ? undefined : Number(cursor) };
    const { data } = await listQueue({ query, signal, throwOnError: true });
    for (const job of data.items) if (!found.has(job.id)) found.set(job.id, job);
    cursor = data.next_cursor ?? null;
  }
  return { data: { items: [...found.values()], next_cursor: cursor } };
}

/** For each project where one reads several, and one table otherwise. */
function Waiting({
  jobs,
  shares,
  isWhole,
}: {
  jobs: readonly JobView[];
  shares: readonly ShareView[];
  isWhole: boolean;
}) {
  const names = useMemo(() => new Map(jobs.map((job) => [job.id, job.name])), [jobs]);
  if (shares.length < 2) return <QueueTable jobs={jobs} names={names} />;
  return sectionsOf(jobs, shares, isWhole).map((section) => (
    <ProjectSection key={section.project} section={section} names={names} />
  ));
}
