/**
 * The table of jobs: rows of one line, the head and the name stay in view, and it scrolls itself in both directions.
 *
 * Not here: what a cell shows (`cells.tsx`), rows of two lines for narrow windows (`JobCards.tsx`).
 */
import { FlexRender, type Row } from "@tanstack/react-table";
import { memo } from "react";
import type { ListedJob } from "@/api/generated";
import type { ColumnInfo } from "./columns";
import { GroupRest, GroupRow } from "./GroupRow";
import type { RowsOfGroup } from "./groups";
import { classOf, Heads } from "./Heads";
import classes from "./JobTable.module.css";
import type { Features, JobsTable } from "./useJobTable";

export interface JobRowsProps {
  table: JobsTable;
  columns: readonly ColumnInfo[];
  /** Groups with the jobs of those that are open; null without groups. */
  groups: readonly RowsOfGroup[] | null;
  cursor: string | null;
  toggleGroup: (value: string | null) => void;
  /** Moves a column to a place, counted without the name. */
  move: (id: string, place: number) => void;
}

const CHOOSE_PX = 36;

export function JobTable({ table, columns, groups, cursor, toggleGroup, move }: JobRowsProps) {
  const rows = table.getRowModel().rows;
  const width = columns.reduce((sum, column) => sum + column.width, CHOOSE_PX);
  const sorted = table.state.sorting[0]?.id;
  const drawn = (row: Row<Features, ListedJob>) => (
    <JobRow key={row.id} row={row} columns={columns} isChosen={row.getIsSelected()} isAtCursor={row.id === cursor} />
  );
  return (
    <div className={classes.scroll}>
      <table className={classes.table} style={{ minWidth: width }}>
        <caption className={classes.caption}>Jobs</caption>
        <thead>
          <tr>
            <th scope="col" className={classes.choose} style={{ width: CHOOSE_PX }}>
              <ChooseAll table={table} />
            </th>
            <Heads table={table} columns={columns} move={move} />
          </tr>
        </thead>
        {groups === null ? (
          <tbody>{rows.map(drawn)}</tbody>
        ) : (
          groups.map((of) => (
            <tbody key={JSON.stringify(of.group.value)}>
              <GroupRow {...of} columns={columns} sorted={sorted} toggle={() => toggleGroup(of.group.value)} />
              {of.jobs.flatMap(({ id }) => rows.filter((row) => row.id === id).map(drawn))}
              <RestRow {...of} span={columns.length + 1} />
            </tbody>
          ))
        )}
      </table>
    </div>
  );
}

function RestRow({ span, ...of }: RowsOfGroup & { span: number }) {
  const rest = GroupRest(of);
  return rest === null ? null : (
    <tr>
      <td colSpan={span} className={classes.rest}>
        {rest}
      </td>
    </tr>
  );
}

export function ChooseAll({ table }: Pick<JobRowsProps, "table">) {
  const isAll = table.getRowModel().rows.length > 0 && table.getIsAllRowsSelected();
  return (
    <input
      type="checkbox"
      aria-label="Select all jobs on this page"
      checked={isAll}
      ref={(box) => {
        if (box !== null) box.indeterminate = !isAll && table.getIsSomeRowsSelected();
      }}
      onChange={(event) => table.toggleAllRowsSelected(event.target.checked)}
    />
  );
}

interface JobRowProps {
  row: Row<Features, ListedJob>;
  columns: readonly ColumnInfo[];
  isChosen: boolean;
  isAtCursor: boolean;
}

/** The table makes new rows with each answer; one whose job did not change is not drawn again. */
const JobRow = memo(
  function JobRow({ row, columns, isChosen, isAtCursor }: JobRowProps) {
    return (
      <tr data-row={row.id} aria-current={isAtCursor ? "true" : undefined} data-chosen={isChosen || undefined}>
        <td className={classes.choose}>
          <ChooseOne row={row} isChosen={isChosen} />
        </td>
        {row.getAllCells().map((cell, place) => {
          const [Tag, scope] = place === 0 ? (["th", "row"] as const) : (["td", undefined] as const);
          return (
            <Tag key={cell.id} scope={scope} className={classOf(columns[place])}>
              <FlexRender cell={cell} />
            </Tag>
          );
        })}
      </tr>
    );
  },
  (before, after) =>
    before.row.original === after.row.original &&
    before.columns === after.columns &&
    before.isChosen === after.isChosen &&
    before.isAtCursor === after.isAtCursor,
);

export function ChooseOne({ row, isChosen }: Pick<JobRowProps, "row" | "isChosen">) {
  return (
    <input
      type="checkbox"
      aria-label={`Select ${row.original.name}`}
      checked={isChosen}
      onChange={row.getToggleSelectedHandler()}
    />
  );
}
