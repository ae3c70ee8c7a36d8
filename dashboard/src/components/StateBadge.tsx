/** A job's state by icon, word and colour: none of them alone. */
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

export function StateBadge({ state, intent }: { state: JobState; intent?: Intent | null }) {
  const sign = SIGNS[state];
  return (
    <span className={classes.badge} data-tone={sign.tone} data-state={state}>
      <span aria-hidden className={classes.icon}>
        {sign.icon}
      </span>
      {state}
      {intent ? <span className={classes.intent}>· {intent} asked</span> : null}
    </span>
  );
}
