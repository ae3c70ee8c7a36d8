/** Columns, order and groups of the address that the service cannot use, each with a way to leave it out. */
import { Button } from "@/components/Button";
import { asList, listed } from "@/lib/listed";
import classes from "./JobsPage.module.css";
import type { RefusedPart } from "./refusals";
import { changed, type JobsView, seen } from "./view";

const NAMES: Record<string, string> = { columns: "Column", sort: "Order by", group: "Groups by" };

interface UnusableProps {
  parts: readonly RefusedPart[];
  view: JobsView;
  go: (view: JobsView) => void;
}

/** Not here: tokens of the filter, which their field marks. */
export function Unusable({ parts, view, go }: UnusableProps) {
  const shown = parts.filter(({ parameter }) => parameter in NAMES);
  if (shown.length === 0) return null;
  const without = ({ parameter, value }: RefusedPart) =>
    parameter === "columns"
      ? seen(view, { columns: asList(listed(view.columns).filter((each) => each !== value)) })
      : changed(view, { [parameter]: undefined });
  return (
    <div className={classes.unusable} role="alert">
      {shown.map((part) => (
        <p key={`${part.parameter} ${part.value}`}>
          {NAMES[part.parameter]} <strong>{part.value}</strong>: {part.words}{" "}
          <Button variant="outline" size="xs" onClick={() => go(without(part))}>
            Leave it out
          </Button>
        </p>
      ))}
    </div>
  );
}
