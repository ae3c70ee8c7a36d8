/** The promise: so many samples in one optimizer step, and the factors that keep it on these devices. */
import type { JobView } from "@/api/generated";
import { Panel } from "@/components/Panel";
import { number } from "@/lib/format";
import classes from "./PromisePanel.module.css";
import { planFactors } from "./plan-factors";

export function PromisePanel({ job }: { job: JobView }) {
  if (job.plan === null) return <ScriptPanel job={job} />;
  const { batch, exact, factors } = planFactors(job.plan);
  return (
    <Panel className={classes.panel} aria-label="Effective batch" data-testid="promise">
      <div className={classes.equation}>
        <div className={classes.batch}>
          <span className={classes.large}>{number(batch)}</span>
          <span className={classes.name}>effective batch, samples a step</span>
        </div>
        {factors.map(({ value, name }, index) => (
          <div key={name} className={classes.term}>
            <span className={classes.sign}>{index > 0 ? "×" : exact ? "=" : "over"}</span>
            <div className={classes.factor}>
              <span className={classes.value}>{value}</span>
              <span className={classes.name}>{name}</span>
            </div>
          </div>
        ))}
      </div>
      {exact || job.plan_sentence === null ? null : <p className={classes.sentence}>{job.plan_sentence}</p>}
    </Panel>
  );
}

/** A script owns its loop: what is run is all there is to say. */
function ScriptPanel({ job }: { job: JobView }) {
  const { script } = job.spec;
  const words = typeof script === "object" && script !== null && "command" in script ? script.command : null;
  return (
    <Panel className={classes.panel} aria-label="Script">
      {Array.isArray(words) ? <code className={classes.command}>{words.join(" ")}</code> : null}
      <p className={classes.sentence}>A script keeps its own loop, so nothing is promised about its batch.</p>
    </Panel>
  );
}
