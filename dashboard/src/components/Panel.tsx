/** A part of a page in a frame of its own, named by its heading, or by an `aria-label` where it has none. */
import { type ComponentProps, type ReactNode, useId } from "react";
import classes from "./Panel.module.css";

interface PanelProps extends Omit<ComponentProps<"section">, "title"> {
  title?: ReactNode;
}

export function Panel({ title, className, children, ...section }: PanelProps) {
  const heading = useId();
  const names = className === undefined ? classes.panel : `${classes.panel} ${className}`;
  return (
    <section aria-labelledby={title === undefined ? undefined : heading} {...section} className={names}>
      {title === undefined ? null : <h2 id={heading}>{title}</h2>}
      {children}
    </section>
  );
}
