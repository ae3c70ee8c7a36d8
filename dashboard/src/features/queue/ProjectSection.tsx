/** A project of the queue: its share of the devices, and its jobs that wait, with each reason once. */
import { Link } from "@tanstack/react-router";
import { useId, useState } from "react";
import type { ShareView } from "@/api/generated";
import { Button } from "@/components/Button";
import { WaitReason } from "@/components/WaitReason";
import { number } from "@/lib/format";
import { counted } from "@/lib/resources";
import classes from "./ProjectSection.module.css";
import { COLUMNS, Columns, type Names, QueueRow } from "./QueueTable";
import { barOf, type Cause, causesOf, placesOf, type Section, tenths } from "./sections";

/** More jobs of one reason are closed at first. */
const OPEN_MAX = 5;

export function ProjectSection({ section: { project, share, jobs }, names }: { section: Section; names: Names }) {
  const heading = useId();
  // By job: a reason has numbers that change, and the jobs below it stay as they are.
  const [chosen, choose] = useState<ReadonlyMap<string, boolean>>(new Map());
  return (
    <section className={classes.panel} aria-labelledby={heading}>
      <div className={classes.head}>
        <h2 id={heading}>
          <Link to="/queue" search={{ project }} title={`Queue of project ${project}`}>
            {project}
          </Link>
        </h2>
        {share === null ? null : <Share share={share} />}
      </div>
      {jobs.length === 0 ? (
        <p className={classes.none}>No job of it waits.</p>
      ) : (
        <table className={classes.table}>
          <caption className={classes.caption}>Jobs of {project} that wait, by reason</caption>
          <Columns />
          {causesOf(jobs).map((cause) => {
            const known = cause.jobs.find(({ id }) => chosen.has(id));
            const isOpen = known === undefined ? cause.jobs.length <= OPEN_MAX : chosen.get(known.id) === true;
            const toggle = () => choose(new Map([...chosen, ...cause.jobs.map(({ id }) => [id, !isOpen] as const)]));
            return <CauseRows key={cause.reason} cause={cause} isOpen={isOpen} toggle={toggle} names={names} />;
          })}
        </table>
      )}
    </section>
  );
}

interface CauseProps {
  cause: Cause;
  isOpen: boolean;
  toggle: () => void;
  names: Names;
}

function CauseRows({ cause: { reason, jobs }, isOpen, toggle, names }: CauseProps) {
  const count = counted(jobs.length, "job");
  return (
    <tbody>
      <tr className={classes.cause}>
        <td className={classes.places}>{isOpen ? null : placesOf(jobs)}</td>
        <td colSpan={COLUMNS - 1}>
          {jobs.length === 1 ? (
            count
          ) : (
            <Button variant="unstyled" aria-expanded={isOpen} onClick={toggle}>
              {count}
            </Button>
          )}
          : <WaitReason reason={reason} nameOf={(id) => names.get(id)} />
        </td>
      </tr>
      {isOpen ? jobs.map((job) => <QueueRow key={job.id} job={job} names={names} />) : null}
    </tbody>
  );
}

function Share({ share }: { share: ShareView }) {
  const bar = barOf(share);
  return (
    <dl className={classes.share}>
      <Fact name="Weight" value={number(share.weight)} />
      <Fact name="Entitled to" value={share.entitled === null ? "–" : tenths(share.entitled)} />
      <div>
        <dt>In use</dt>
        <dd>{counted(share.in_use, "device")}</dd>
        {bar === null ? null : (
          <dd className={classes.bar} aria-hidden>
            <span style={{ width: `${bar.used}%` }} />
            <i style={{ left: `${bar.entitled}%` }} />
          </dd>
        )}
      </div>
      <Fact name="Waiting" value={counted(share.queued, "job")} />
    </dl>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}
