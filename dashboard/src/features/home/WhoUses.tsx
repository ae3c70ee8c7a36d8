/** Devices by project: in use, held but idle, and their holders. */
import { Link } from "@tanstack/react-router";
import { useId } from "react";
import type { ProjectUse } from "@/api/generated";
import { Panel } from "@/components/Panel";
import { number } from "@/lib/format";
import { counted } from "@/lib/resources";
import classes from "./HomePage.module.css";

const PEOPLE_MAX = 4;

interface Props {
  projects: readonly ProjectUse[];
  /** Devices of jobs that the caller may not read. */
  others: number;
  total: number;
}

export function WhoUses({ projects, others, total }: Props) {
  const heading = useId();
  const sorted = [...projects].sort((a, b) => b.in_use - a.in_use || (a.project < b.project ? -1 : 1));
  return (
    <Panel className={classes.panel} aria-labelledby={heading}>
      <div className={classes.head}>
        <h2 id={heading}>Who uses what</h2>
        <Link to="/cluster">Cluster</Link>
      </div>
      {sorted.length === 0 && others === 0 ? <p className={classes.none}>No job holds a device.</p> : null}
      {sorted.length === 0 ? null : (
        <table className={classes.table}>
          <thead>
            <tr>
              <th scope="col">Project</th>
              <th scope="col">In use</th>
              <th scope="col">Entitled</th>
              <th scope="col">Waiting</th>
              <th scope="col">People</th>
            </tr>
          </thead>
          <tbody>
            {sorted.map((project) => (
              <Row key={project.project} of={project} total={total} />
            ))}
          </tbody>
        </table>
      )}
      {others === 0 ? null : <p className={classes.none}>Other projects hold {counted(others, "device")}.</p>}
    </Panel>
  );
}

function Row({ of, total }: { of: ProjectUse; total: number }) {
  const { project, in_use: held, idle, entitled, queued, people } = of;
  const percent = (count: number) => `${(100 * count) / Math.max(1, total)}%`;
  const most = [...people].sort((a, b) => b.in_use - a.in_use);
  const more = most.length - PEOPLE_MAX;
  return (
    <tr>
      <th scope="row">
        <Link to="/jobs" search={{ project }}>
          {project}
        </Link>
      </th>
      <td data-name="In use">
        <span className={classes.use} aria-hidden>
          <span data-kind="in_use" style={{ width: percent(held - idle) }} />
          <span data-kind="idle" style={{ width: percent(idle) }} />
        </span>
        {held}
        {idle === 0 ? null : <span className={classes.idle}> {idle} idle</span>}
      </td>
      <td data-name="Entitled">{entitled === null ? "–" : number(Math.round(entitled * 10) / 10)}</td>
      <td data-name="Waiting">{queued === 0 ? "–" : queued}</td>
      <td data-name="People" className={classes.people}>
        {most.slice(0, PEOPLE_MAX).map(({ user, in_use: devices }) => (
          <span key={user}>
            <Link to="/jobs" search={{ owner: user }}>
              {user}
            </Link>{" "}
            {devices}
          </span>
        ))}
        {more > 0 ? <span>{more} more</span> : null}
      </td>
    </tr>
  );
}
