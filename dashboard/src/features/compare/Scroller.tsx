/** A panel around a wide table, which scrolls inside of it, by the keyboard too. */
import type { ReactNode } from "react";
import classes from "./Tables.module.css";

export function Scroller({ label, children }: { label: string; children: ReactNode }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard
    <section className={classes.scroll} aria-label={label} tabIndex={0}>
      {children}
    </section>
  );
}
