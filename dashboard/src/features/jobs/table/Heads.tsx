/** Heads of the columns: a press sorts, and a drag moves the column. `ColumnOrder` moves it by buttons. */
import { FlexRender, type Header } from "@tanstack/react-table";
import { type DragEvent, useState } from "react";
import type { ListedJob } from "@/api/generated";
import { Button } from "@/components/Button";
import { type ColumnInfo, NAME } from "./columns";
import type { JobRowsProps } from "./JobTable";
import classes from "./JobTable.module.css";
import type { Features } from "./useJobTable";

const ORDERS = { asc: "ascending", desc: "descending" } as const;

/** Places of the column that is dragged, and of that under it. */
interface Drag {
  from: number;
  over: number;
}

export function Heads({ table, columns, move }: Pick<JobRowsProps, "table" | "columns" | "move">) {
  const [drag, setDrag] = useState<Drag | null>(null);
  const dragged = (place: number) => ({
    draggable: true,
    "data-over": drag === null || drag.over !== place || drag.from === place ? undefined : sideOf(drag),
    onDragStart: (event: DragEvent) => {
      event.dataTransfer.effectAllowed = "move";
      event.dataTransfer.setData("text/plain", columns[place]?.label ?? "");
      setDrag({ from: place, over: place });
    },
    onDragOver: (event: DragEvent) => {
      if (drag === null) return;
      event.preventDefault();
      if (drag.over !== place) setDrag({ ...drag, over: place });
    },
    onDrop: (event: DragEvent) => {
      event.preventDefault();
      const id = columns[drag?.from ?? place]?.id;
      // The name is the first column, and no choice.
      if (id !== undefined && drag?.from !== place) move(id, place - 1);
      setDrag(null);
    },
    onDragEnd: () => setDrag(null),
  });
  return table
    .getFlatHeaders()
    .map((header, place) => (
      <Head
        key={header.id}
        header={header}
        info={columns[place]}
        drag={columns[place]?.id === NAME.id ? {} : dragged(place)}
      />
    ));
}

function sideOf({ from, over }: Drag): "left" | "right" {
  return over < from ? "left" : "right";
}

interface HeadProps {
  header: Header<Features, ListedJob, unknown>;
  info: ColumnInfo | undefined;
  drag: object;
}

function Head({ header, info, drag }: HeadProps) {
  const { column } = header;
  const sorted = column.getIsSorted();
  return (
    <th
      scope="col"
      className={classOf(info)}
      style={{ width: info?.width }}
      aria-sort={sorted === false ? undefined : ORDERS[sorted]}
      title={info?.title ?? info?.label}
      {...drag}
    >
      {column.getCanSort() ? (
        <Button variant="unstyled" onClick={column.getToggleSortingHandler()}>
          <span className={classes.label}>
            <FlexRender header={header} />
          </span>
          {sorted === false ? null : <span aria-hidden>{sorted === "asc" ? "▲" : "▼"}</span>}
        </Button>
      ) : (
        <FlexRender header={header} />
      )}
    </th>
  );
}

export function classOf(info: ColumnInfo | undefined): string | undefined {
  if (info?.id === NAME.id) return classes.pin;
  return info?.isNumber ? classes.number : undefined;
}
