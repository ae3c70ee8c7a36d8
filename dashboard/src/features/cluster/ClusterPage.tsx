/** The machines: what each device does and for whom, and which of them are given no work, with why. */
import { useState } from "react";
import { getSeries, type JobView, listJobs, listNodes, type NodeView, type SeriesView } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { Clock } from "@/components/Clock";
import { Empty } from "@/components/Empty";
import { Failed } from "@/components/Failed";
import { SkeletonRows } from "@/components/SkeletonRows";
import { PageStale } from "@/components/Stale";
import { usePageTitle } from "@/components/usePageTitle";
import { counted, freeSentence } from "@/lib/resources";
import classes from "./ClusterPage.module.css";
import { IDLE_SECONDS, rankOn, seriesAsked, takenBy } from "./measured";
import { NodePanel } from "./NodePanel";

/** What one answer may hold: jobs, and points of all of them together. */
const JOBS_MAX = 50;
const POINTS_MAX = 200_000;
/** So that an address stays shorter than what proxies take. */
const NAMES_MAX = 100;
/** Enough to say since when a device is idle; less where there are many series. */
const POINTS_WANTED = 120;
const NONE: readonly NodeView[] = [];

export function ClusterPage() {
  usePageTitle("Cluster");
  const { data, error, refetch } = useNodes();
  const nodes = data?.items ?? NONE;
  const holders = useHolders();
  const measured = useMeasured(nodes, holders);
  /** The job whose devices are shown together, because one of them is pointed at. */
  const [lit, setLit] = useState<string | null>(null);
  const idle = nodes.flatMap((node) =>
    node.devices.filter(({ job_id, index, kind }) => {
      const job = job_id === null ? undefined : holders.get(job_id);
      const rank = job === undefined ? null : rankOn(job, node, index);
      if (job === undefined || rank === null) return false;
      return takenBy(job, rank, kind, measured.get(job.id) ?? []).idleSeconds >= IDLE_SECONDS;
    }),
  ).length;
  return (
    <>
      <h1 className={classes.title}>Cluster</h1>
      <PageStale of={["nodes"]} />
      <p className={classes.summary}>
        {nodes.length === 0 ? null : freeSentence(nodes)}{" "}
        {idle === 0 ? null : (
          <strong className={classes.warning}>
            {counted(idle, "device")} {idle === 1 ? "is" : "are"} reserved but idle.
          </strong>
        )}
      </p>
      {data === undefined && error !== null ? <Failed error={error} retry={() => void refetch()} /> : null}
      {data === undefined && error === null ? <SkeletonRows label="The nodes are loading" /> : null}
      {data !== undefined && nodes.length === 0 ? (
        <Empty title="No node is registered" command="lockstep agent">
          <p>
            A node is a machine whose agent has found the service. lockstep up starts one beside the service; on every
            other machine run:
          </p>
        </Empty>
      ) : null}
      <div className={classes.nodes}>
        <Clock of={["nodes"]}>
          {nodes.map((node) => (
            <NodePanel key={node.name} node={node} holders={holders} measured={measured} lit={lit} light={setLit} />
          ))}
        </Clock>
      </div>
    </>
  );
}

function useNodes() {
  return usePolled({ key: ["nodes"], fetch: (signal) => listNodes({ signal, throwOnError: true }), seconds: 5 });
}

/** Jobs that may hold devices, by id. */
function useHolders(): ReadonlyMap<string, JobView> {
  const { data } = usePolled({
    key: ["jobs", "live"],
    fetch: (signal) => listJobs({ query: { state: ["running", "starting"], limit: 500 }, signal, throwOnError: true }),
    seconds: 5,
  });
  return new Map((data?.items ?? []).map((job) => [job.id, job]));
}

/** What the holders' agents measured, by job. */
function useMeasured(
  nodes: readonly NodeView[],
  holders: ReadonlyMap<string, JobView>,
): ReadonlyMap<string, readonly SeriesView[]> {
  const { jobs, names } = seriesAsked(nodes, holders);
  const { data } = usePolled({
    key: ["series", "system", jobs, names],
    fetch: (signal) => inParts(jobs, names, signal),
    seconds: 10,
    enabled: jobs.length > 0,
    keepPrevious: true,
  });
  return data ?? new Map();
}

async function inParts(jobs: string[], names: string[], signal: AbortSignal) {
  const parts = pieces(jobs, JOBS_MAX).flatMap((someJobs) =>
    pieces(names, NAMES_MAX).map((someNames) => {
      const points = Math.floor(POINTS_MAX / (someJobs.length * someNames.length));
      const query = { jobs: someJobs, names: someNames, max_points: Math.min(POINTS_WANTED, points) };
      return getSeries({ query, signal, throwOnError: true });
    }),
  );
  const found = new Map<string, SeriesView[]>();
  for (const { data } of await Promise.all(parts)) {
    for (const { job_id, series } of data.jobs) found.set(job_id, [...(found.get(job_id) ?? []), ...series]);
  }
  return { data: found };
}

function pieces<T>(all: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(all.length / size) }, (_, place) =>
    all.slice(place * size, (place + 1) * size),
  );
}
