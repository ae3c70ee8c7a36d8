/** The machines: what each device does and for whom, and which of them are given no work, with why. */
import { useState } from "react";
import type { NodeView } from "@/api/generated";
import { Clock } from "@/components/Clock";
import { Empty } from "@/components/Empty";
import { Failed } from "@/components/Failed";
import { SkeletonRows } from "@/components/SkeletonRows";
import { PageStale } from "@/components/Stale";
import { usePageTitle } from "@/components/usePageTitle";
import { counted, freeSentence } from "@/lib/resources";
import { IDLE_SECONDS, rankOn, takenBy } from "./measured";
import { NodePanel } from "./NodePanel";
import classes from "./NodesPage.module.css";
import { useHolders, useMeasured, useNodes } from "./useNodes";

const NONE: readonly NodeView[] = [];

export function NodesPage() {
  usePageTitle("Nodes");
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
      <h1 className={classes.title}>Nodes</h1>
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
