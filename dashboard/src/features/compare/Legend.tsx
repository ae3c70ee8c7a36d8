/** The compared jobs, each with its line: shown or hidden, its page, and out of the comparison. */
import { Link } from "@tanstack/react-router";
import type { JobView } from "@/api/generated";
import { Swatch } from "@/components/charts/Swatch";
import { StateBadge } from "@/components/StateBadge";
import classes from "./Legend.module.css";

interface LegendProps {
  jobs: readonly JobView[];
  slots: ReadonlyMap<string, number>;
  hidden: ReadonlySet<string>;
  onHide: (id: string, isHidden: boolean) => void;
  onRemove: (id: string) => void;
}

export function Legend({ jobs, slots, hidden, onHide, onRemove }: LegendProps) {
  return (
    <ul className={classes.legend} aria-label="Compared jobs">
      {jobs.map(({ id, name, state }) => (
        <li key={id} data-hidden={hidden.has(id) || undefined}>
          <label>
            <input type="checkbox" checked={!hidden.has(id)} onChange={(event) => onHide(id, !event.target.checked)} />
            <Swatch slot={slots.get(id) ?? 0} />
            <span className={classes.for}>Show {name}</span>
          </label>
          <Link to="/jobs/$job" params={{ job: id }} className={classes.name}>
            {name}
          </Link>
          <StateBadge state={state} />
          <button type="button" aria-label={`Remove ${name} from the comparison`} onClick={() => onRemove(id)}>
            ×
          </button>
        </li>
      ))}
    </ul>
  );
}
