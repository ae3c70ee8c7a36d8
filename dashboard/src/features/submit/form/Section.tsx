import { type ReactNode, useId } from "react";
import classes from "./Section.module.css";

/** A group of fields under a heading, and at most one sentence about them. */
export function Section({ title, says, children }: { title: string; says?: string; children: ReactNode }) {
  const id = useId();
  return (
    <section className={classes.section} aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      <div className={classes.content}>
        {says ? <p className={classes.says}>{says}</p> : null}
        <div className={classes.fields}>{children}</div>
      </div>
    </section>
  );
}
