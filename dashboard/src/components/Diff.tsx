/** What differs between two texts, line by line. */
import { useId, useMemo } from "react";
import { changedParts, diffLines } from "@/lib/diff";
import classes from "./Diff.module.css";

const SIGNS = { same: " ", gone: "−", new: "+" } as const;
const WORDS = { same: "", gone: "removed: ", new: "added: " } as const;

interface DiffProps {
  title: string;
  before: string;
  after: string;
  /** Said of two texts that are the same. */
  none: string;
}

export function Diff({ title, before, after, none }: DiffProps) {
  const heading = useId();
  const parts = useMemo(() => changedParts(diffLines(before, after)), [before, after]);
  return (
    <section className={classes.diff} aria-labelledby={heading}>
      <h2 id={heading}>{title}</h2>
      {parts.length === 0 ? (
        <p>{none}</p>
      ) : (
        <pre data-testid="diff">
          {parts.map((line, index) =>
            line === null ? (
              <span key={`gap ${index.toString()}`} className={classes.gap}>
                {"…\n"}
              </span>
            ) : (
              <span key={`${line.kind} ${line.number}`} className={classes.line} data-kind={line.kind}>
                <span aria-hidden>{SIGNS[line.kind]} </span>
                <span className={classes.unseen}>{WORDS[line.kind]}</span>
                {`${line.text}\n`}
              </span>
            ),
          )}
        </pre>
      )}
    </section>
  );
}
