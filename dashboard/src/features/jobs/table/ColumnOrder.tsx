/** The order of the columns, changed by buttons; the heads of the table are dragged for the same. */
import { useLayoutEffect, useRef, useState } from "react";
import { Button } from "@/components/Button";
import classes from "./ColumnOrder.module.css";
import { type ColumnInfo, movedTo } from "./columns";

interface ColumnOrderProps {
  columns: readonly ColumnInfo[];
  choose: (ids: readonly string[]) => void;
}

const WAYS = [
  { by: -1, sign: "▲", words: "to the left" },
  { by: 1, sign: "▼", words: "to the right" },
] as const;

export function ColumnOrder({ columns, choose }: ColumnOrderProps) {
  const ids = columns.map(({ id }) => id);
  const [pressed, setPressed] = useState({ id: "", by: 0 });
  const button = useRef<HTMLButtonElement>(null);
  // A row that is moved in the document loses the focus.
  const order = ids.join();
  useLayoutEffect(() => {
    if (order !== "") button.current?.focus();
  }, [order]);
  if (ids.length < 2) return null;
  return (
    <fieldset className={classes.order}>
      <legend>Order, from left to right</legend>
      <ol>
        {columns.map(({ id, label, title }, place) => (
          <li key={id}>
            <span title={title}>{label}</span>
            {WAYS.map(({ by, sign, words }) => {
              const isEdge = ids[place + by] === undefined;
              return (
                <Button
                  size="xs"
                  key={by}
                  ref={pressed.id === id && pressed.by === by ? button : null}
                  aria-label={`Move ${label} ${words}`}
                  aria-disabled={isEdge}
                  onClick={() => {
                    if (isEdge) return;
                    setPressed({ id, by });
                    choose(movedTo(ids, id, place + by));
                  }}
                >
                  <span aria-hidden>{sign}</span>
                </Button>
              );
            })}
          </li>
        ))}
      </ol>
    </fieldset>
  );
}
