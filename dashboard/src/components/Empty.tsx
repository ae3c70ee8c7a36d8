/** Nothing to show yet: what would be here, and the command or page that puts it there. */
import { Code } from "@mantine/core";
import type { ReactNode } from "react";
import classes from "./Empty.module.css";

export function Empty({ title, command, children }: { title: string; command?: string; children?: ReactNode }) {
  return (
    <div className={classes.empty}>
      <h2>{title}</h2>
      {children}
      {command ? <Code className={classes.command}>{command}</Code> : null}
    </div>
  );
}
