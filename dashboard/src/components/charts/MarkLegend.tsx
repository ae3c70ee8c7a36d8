/** Legend of the marks below the curves, for the marks of the job. */
import { MARK_KINDS, MARK_NAMES, type Mark } from "@/lib/marks";
import { MarkIcon } from "./MarkIcon";
import classes from "./MarkLegend.module.css";

export function MarkLegend({ marks }: { marks: readonly Mark[] }) {
  const found = MARK_KINDS.filter((kind) => marks.some((mark) => mark.kind === kind));
  if (found.length === 0) return null;
  return (
    <ul className={classes.legend} aria-label="Marks below the curves">
      {found.map((kind) => (
        <li key={kind}>
          <MarkIcon kind={kind} />
          {MARK_NAMES[kind]}
        </li>
      ))}
    </ul>
  );
}
