/** Empty state: a description of the missing content, and the command or page that creates it. */
import type { ReactNode } from "react";
import classes from "./Empty.module.css";

interface EmptyProps {
  title: string;
  command?: string;
  /** It is all that the page has, so that its title is the page's. */
  isPage?: boolean;
  children?: ReactNode;
}

export function Empty({ title, command, isPage = false, children }: EmptyProps) {
  const Title = isPage ? "h1" : "h2";
  return (
    <div className={classes.empty}>
      <Title className={classes.title}>{title}</Title>
      {children}
      {command ? <code className={classes.command}>{command}</code> : null}
    </div>
  );
}
