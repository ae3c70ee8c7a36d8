/** A named value of the panels about a job's progress and wait. */
import classes from "./ProgressPanel.module.css";

interface FigureProps {
  name: string;
  value: string;
  more?: string;
  /** Of a clock: the time at which it stands; null while it goes. */
  stoppedAt?: number | null;
}

export function Figure({ name, value, more = "", stoppedAt }: FigureProps) {
  return (
    <div className={stoppedAt === undefined ? undefined : classes.clock}>
      <dt>
        {name}
        {stoppedAt == null ? null : (
          <span className={classes.stopped} title={`No answer since ${new Date(stoppedAt).toLocaleTimeString()}`}>
            {" "}
            stopped
          </span>
        )}
      </dt>
      <dd>
        <span className={classes.value}>{value}</span>
        <span className={classes.of}>{more}</span>
      </dd>
    </div>
  );
}
