/** The place of a list that is awaited. It appears after a moment only: most answers are there before it. */
import classes from "./SkeletonRows.module.css";

const WIDTHS = ["72%", "58%", "66%", "49%", "61%", "54%"];

export function SkeletonRows({ label }: { label: string }) {
  return (
    <div className={classes.rows} role="status" aria-label={label}>
      {WIDTHS.map((width) => (
        <div key={width} className={classes.row} aria-hidden>
          <span style={{ width }} />
        </div>
      ))}
    </div>
  );
}
