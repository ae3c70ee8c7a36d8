/** The devices of a node, in their order, with what the holders use of them. */
import type { JobView, NodeView, SeriesView } from "@/api/generated";
import { DeviceRow } from "./DeviceRow";
import classes from "./DeviceTable.module.css";
import { rankOn, takenBy } from "./measured";

interface Props {
  node: NodeView;
  holders: ReadonlyMap<string, JobView>;
  measured: ReadonlyMap<string, readonly SeriesView[]>;
  now: number;
  lit: string | null;
  light: (job: string | null) => void;
}

export function DeviceTable({ node, holders, measured, now, lit, light }: Props) {
  const devices = [...node.devices].sort((a, b) => a.index - b.index);
  return (
    <table className={classes.table}>
      <caption className={classes.caption}>Devices of {node.name}</caption>
      <thead>
        <tr>
          <th scope="col">Device</th>
          <th scope="col">Use</th>
          <th scope="col">Memory</th>
          <th scope="col">Heat</th>
          <th scope="col">Job</th>
          <th scope="col">Owner</th>
          <th scope="col">Idle</th>
        </tr>
      </thead>
      <tbody>
        {devices.map((device) => {
          const job = device.job_id === null ? undefined : holders.get(device.job_id);
          const rank = job === undefined ? null : rankOn(job, node, device.index);
          return (
            <DeviceRow
              key={device.index}
              device={device}
              job={job}
              rank={rank}
              use={
                job === undefined || rank === null ? null : takenBy(job, rank, device.kind, measured.get(job.id) ?? [])
              }
              now={now}
              isOpen={node.state === "ready"}
              isLit={lit !== null && lit === device.job_id}
              light={light}
            />
          );
        })}
      </tbody>
    </table>
  );
}
