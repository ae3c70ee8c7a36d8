/** A new secret, which the service shows only in the answer that made it. */
import type { ReactNode } from "react";
import { CopyButton } from "@/components/CopyButton";
import classes from "./PeoplePages.module.css";

export function ShownOnce({ secret, what, children }: { secret: string; what: string; children: ReactNode }) {
  return (
    <div className={classes.note} role="status">
      {children}
      <code className={classes.secret}>{secret}</code>
      <CopyButton text={secret} what={what} label="Copy" />
    </div>
  );
}
