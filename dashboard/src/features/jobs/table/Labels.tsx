/** Labels of a job: each leads to the jobs that have it, too. */
import { Link } from "@tanstack/react-router";
import type { ListedJob } from "@/api/generated";
import { tokenFor, withToken } from "../filter/tokens";
import { changed } from "../view";
import classes from "./cells.module.css";
import { useList } from "./list";
import { labelWords } from "./words";

/** More of them do not fit beside the name, and into a column of their own. */
const SHOWN_MAX = { name: 1, column: 3 };

export function Labels({ job }: { job: ListedJob }) {
  const { view, hasLabels } = useList();
  const most = hasLabels ? SHOWN_MAX.column : SHOWN_MAX.name;
  const labels = Object.entries(job.labels);
  if (labels.length === 0) return null;
  const more = labels.slice(most).map(([key, value]) => labelWords(key, value));
  return (
    <span className={classes.labels}>
      {labels.slice(0, most).map(([key, value]) => {
        const words = labelWords(key, value);
        const token = value === "" ? tokenFor("label", key) : tokenFor(`label:${key}`, value);
        const search = changed(view, { filter: withToken(view.filter, token) });
        return (
          <Link key={key} to="/jobs" search={search} title={`Jobs with ${words}`} className={classes.label}>
            <span className={classes.chip}>{words}</span>
          </Link>
        );
      })}
      {more.length === 0 ? null : (
        <span className={classes.soft} title={more.join(", ")}>
          +{more.length}
        </span>
      )}
    </span>
  );
}
