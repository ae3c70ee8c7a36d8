/** What differs from the job that is cloned, line by line, as one edits. */
import { useMemo } from "react";
import classes from "./Diff.module.css";
import { changedParts, diffLines } from "./text/diff";

const SIGNS = { same: " ", gone: "−", new: "+" } as const;
const WORDS = { same: "", gone: "removed: ", new: "added: " } as const;

export function Diff({ before, after }: { before: string; after: string }) {
  const parts = useMemo(() => changedParts(diffLines(before, after)), [before, after]);
  return (
    <section className={classes.diff} aria-labelledby="changes">
      <h2 id="changes">Changes</h2>
      {parts.length === 0 ? (
        <p>None: the same job again.</p>
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
