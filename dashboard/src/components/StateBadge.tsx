/** A job's state by icon, word and colour: none of them alone. */
import type { ReactNode } from "react";
import type { Intent, JobState } from "@/api/generated";
import classes from "./StateBadge.module.css";

const SIGNS: Record<JobState, { icon: string; tone: "wait" | "busy" | "good" | "bad" | "idle" }> = {
  queued: { icon: "◷", tone: "wait" },
  starting: { icon: "◔", tone: "busy" },
  running: { icon: "▶", tone: "busy" },
  paused: { icon: "‖", tone: "idle" },
  succeeded: { icon: "✓", tone: "good" },
  failed: { icon: "✕", tone: "bad" },
  cancelled: { icon: "⊘", tone: "idle" },
};

interface StateBadgeProps {
  state: JobState;
  intent?: Intent | null;
  /** Without a ground, for a table full of them. */
  isPlain?: boolean;
  /** In place of the state's name. */
  children?: ReactNode;
}

export function StateBadge({ state, intent, isPlain, children = state }: StateBadgeProps) {
  const sign = SIGNS[state];
  return (
    <span className={isPlain ? classes.plain : classes.badge} data-tone={sign.tone} data-state={state}>
      <span aria-hidden className={classes.icon}>
        {sign.icon}
      </span>
      {children}
      {intent ? <span className={classes.intent}>· {intent} asked</span> : null}
    </span>
  );
}
