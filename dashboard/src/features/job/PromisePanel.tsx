/** The promise: so many samples in one optimizer step, and the factors that keep it on these devices. */
import { Fragment } from "react";
import type { JobView } from "@/api/generated";
import { number } from "@/lib/format";
import classes from "./PromisePanel.module.css";
import { planFactors } from "./plan-factors";

export function PromisePanel({ job }: { job: JobView }) {
  if (job.plan === null) {
    return (
      <section className={classes.panel} aria-label="Effective batch">
        <p className={classes.none}>
          A script keeps its own loop: Lockstep promises nothing about its batch. Write <code>kind: train</code> to have
          the batch kept.
        </p>
      </section>
    );
  }
  const { batch, exact, factors } = planFactors(job.plan);
  return (
    <section className={classes.panel} aria-label="Effective batch" data-testid="promise">
      <div className={classes.equation}>
        <div className={classes.batch}>
          <span className={classes.large}>{number(batch)}</span>
          <span className={classes.name}>effective batch, samples a step</span>
        </div>
        {factors.map(({ value, name }, index) => (
          <Fragment key={name}>
            <span className={classes.sign}>{index > 0 ? "×" : exact ? "=" : "over"}</span>
            <div className={classes.factor}>
              <span className={classes.value}>{value}</span>
              <span className={classes.name}>{name}</span>
            </div>
          </Fragment>
        ))}
      </div>
      {exact || job.plan_sentence === null ? null : <p className={classes.sentence}>{job.plan_sentence}</p>}
    </section>
  );
}
