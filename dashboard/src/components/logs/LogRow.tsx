/**
 * One line of a log: its number, which is its address, its time, its source, and its coloured text.
 */
import { memo, type ReactNode } from "react";
import type { LogLine } from "@/api/generated";
import { marked, pieces } from "@/lib/ansi";
import { moment, timeOfDay } from "@/lib/format";
import { rankName } from "@/lib/log-view";
import { AnsiPiece } from "./AnsiText";
import ansi from "./ansi.module.css";
import classes from "./LogRow.module.css";

interface LogRowProps {
  line: LogLine;
  /** Attempts are shown only if there are several. */
  severalAttempts: boolean;
  search: string;
  showTime: boolean;
  isPointedAt: boolean;
  /** The number as a link to this line. */
  number: (line: LogLine, children: ReactNode) => ReactNode;
}

export const LogRow = memo(function LogRow({
  line,
  severalAttempts,
  search,
  showTime,
  isPointedAt,
  number,
}: LogRowProps) {
  const shown = severalAttempts ? `${line.attempt}·${line.line + 1}` : String(line.line + 1);
  return (
    <div className={classes.row} data-pointed-at={isPointedAt || undefined} aria-current={isPointedAt || undefined}>
      <span className={classes.number} title={moment(line.time)}>
        {number(line, shown)}
      </span>
      {showTime ? <span className={classes.time}>{timeOfDay(new Date(line.time))}</span> : null}
      <span className={classes.source} data-stream={line.stream}>
        {rankName(line.rank)}
        {line.stream === "stderr" ? " err" : ""}
      </span>
      <span className={classes.text}>{textOf(line.text, search)}</span>
    </div>
  );
});

function textOf(text: string, search: string): ReactNode {
  return marked(pieces(text), search).map((piece, index) => {
    const look = piece.looks.map((name) => ansi[name]).join(" ");
    // Pieces have no identity beyond their place in the line, and a line never changes.
    const key = `${index}`;
    if (piece.hit) {
      return (
        <mark key={key} className={`${classes.hit} ${look}`}>
          {piece.text}
        </mark>
      );
    }
    return look === "" && piece.href === undefined ? piece.text : <AnsiPiece key={key} {...piece} />;
  });
}
