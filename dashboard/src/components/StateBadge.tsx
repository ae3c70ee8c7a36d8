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

/** The icon alone, with its word for screen readers and as a tooltip. */
export function StateIcon({ state }: { state: JobState }) {
  const { icon, tone } = SIGNS[state];
  return (
    <span className={classes.alone} data-tone={tone} data-state={state} title={state}>
      <span aria-hidden className={classes.icon}>
        {icon}
      </span>
      <span className={classes.word}>{state}</span>
    </span>
  );
}

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
