/** Row of a group, with the numbers of all its jobs; it opens and closes them. */
import { Link } from "@tanstack/react-router";
import { Button } from "@/components/Button";
import { StateBadge } from "@/components/StateBadge";
import { number } from "@/lib/format";
import { counted } from "@/lib/resources";
import { STATES } from "../view";
import type { ColumnInfo } from "./columns";
import classes from "./GroupRow.module.css";
import type { RowsOfGroup } from "./groups";
import { statesInWords } from "./words";

interface GroupRowProps extends RowsOfGroup {
  columns: readonly ColumnInfo[];
  /** Column by which the list is sorted; undefined if it is not shown. */
  sorted: string | undefined;
  toggle: () => void;
}

export function GroupRow({ columns, sorted, ...of }: GroupRowProps) {
  const { group } = of;
  const shown = columns.slice(1);
  // The states of a group are longer than one.
  const isWide = shown[0]?.id === "state" && shown[1]?.id === "progress";
  const content = (id: string) => {
    if (id === "state") return <GroupStates {...of} />;
    if (id === "gpus") return group.gpus_in_use === 0 ? null : number(group.gpus_in_use);
    return id === sorted ? bestOf(of) : null;
  };
  return (
    <tr className={classes.group}>
      <td className={classes.choose} />
      <th scope="row" className={classes.pin}>
        <GroupName {...of} />
      </th>
      {(isWide ? [shown[0], ...shown.slice(2)] : shown).map((column, place) => (
        <td
          key={column?.id}
          className={column?.isNumber ? classes.number : undefined}
          colSpan={isWide && place === 0 ? 2 : undefined}
        >
          {content(column?.id ?? "")}
        </td>
      ))}
    </tr>
  );
}

export function GroupName({ group, isOpen, view, toggle }: Omit<GroupRowProps, "columns" | "sorted">) {
  const name = group.value ?? "without a value";
  const words = (
    <>
      <span className={classes.value}>{name}</span> <span className={classes.soft}>{counted(group.total, "job")}</span>
    </>
  );
  // No filter names the jobs without a value of a setting.
  if (view === null) return <span className={classes.name}>{words}</span>;
  return (
    <Button variant="unstyled" className={classes.name} aria-expanded={isOpen} title={name} onClick={toggle}>
      <span aria-hidden className={classes.arrow}>
        {isOpen ? "▾" : "▸"}
      </span>
      {words}
    </Button>
  );
}

export function GroupStates({ group }: Pick<RowsOfGroup, "group">) {
  return (
    <span className={classes.states} title={statesInWords(group.states)}>
      {STATES.map((state) =>
        group.states[state] ? (
          <StateBadge key={state} state={state} isPlain>
            {number(group.states[state])}
            <span className={classes.hidden}> {state}</span>
          </StateBadge>
        ) : null,
      )}
    </span>
  );
}

/** The value of the first of its jobs in the order of the list. */
export function bestOf({ group }: Pick<RowsOfGroup, "group">): string | null {
  if (group.best === null || group.best === undefined) return null;
  return typeof group.best === "number" ? number(group.best) : group.best;
}

/** Way to the jobs of an open group that are beyond those shown. */
export function GroupRest({ group, isOpen, jobs, view }: Omit<RowsOfGroup, "columns">) {
  const count = group.total - jobs.length;
  if (!isOpen || view === null || jobs.length === 0 || count <= 0) return null;
  return (
    <Link to="/jobs" search={view} className={classes.rest}>
      {number(count)} more: show all {counted(group.total, "job")}
    </Link>
  );
}
