/** What would happen if the text were submitted now: the batch in factors, its memory, its place and its turn. */
import { useState } from "react";
import type { PlanView } from "@/api/generated";
import { Button } from "@/components/Button";
import { useNameIn } from "@/components/useNameIn";
import { WaitReason } from "@/components/WaitReason";
import { duration, moment, number } from "@/lib/format";
import { timeLimitWords } from "@/lib/time-limit";
import { type SpecText, valueAt } from "../text/read";
import { batchOf, type Factor } from "./factors";
import { memoryOf } from "./memory";
import classes from "./PlanPanel.module.css";
import type { Planned } from "./usePlan";

export function PlanPanel({ planned, spec }: { planned: Planned; spec: SpecText }) {
  const { view, isOld } = planned;
  return (
    <div className={classes.plan} data-old={isOld && view !== null} data-testid="plan">
      {view === null ? <p className={classes.none}>{why(planned, spec)}</p> : <Known view={view} />}
    </div>
  );
}

function why({ error, problems }: Planned, spec: SpecText): string {
  if (spec.unreadable !== null) return "No plan: the text is not YAML.";
  if (problems.length > 0) return "No plan: the service would refuse this.";
  return error === null ? "" : `No plan: ${error.message}`;
}

function Known({ view }: { view: PlanView }) {
  const memory = memoryOf(view);
  const steps = view.plan?.steps;
  const nameOf = useNameIn(view.queue?.reason ?? "");
  return (
    <>
      <BatchSentence view={view} />
      <dl className={classes.facts}>
        <Fact name="Start">
          {view.queue === null ? (
            `now, on ${view.placement.join(", ")}`
          ) : (
            <>
              waits at position {view.queue.position}: <WaitReason reason={view.queue.reason} nameOf={nameOf} />
            </>
          )}
          {view.queue?.estimated_start
            ? `; about ${moment(view.queue.estimated_start)}${inTime(view.queue.estimated_start)}`
            : ""}
        </Fact>
        {view.plan == null ? null : (
          <Fact name="Length">
            {steps == null
              ? "in epochs: known once the data is read"
              : `${number(steps)} steps, ${number(steps * view.plan.batch_size)} samples`}
          </Fact>
        )}
        {memory === null ? null : (
          <Fact name="Memory">
            {memory.rank}
            {memory.parts === null ? null : <span className={classes.parts}>{memory.parts}</span>}
            {memory.device === null ? null : (
              <span className={memory.isShort ? classes.short : undefined}>{memory.device}</span>
            )}
            {memory.source === null ? null : <span className={classes.parts}>{memory.source}</span>}
          </Fact>
        )}
        {view.limit == null ? null : <Fact name="Limit">{timeLimitWords(view.limit)}</Fact>}
        {view.retries == null ? null : (
          <Fact name="Retries">
            {view.retries.sentences.map((sentence) => (
              <span key={sentence}>{sentence}</span>
            ))}
          </Fact>
        )}
      </dl>
      {(view.warnings ?? []).map((warning) => (
        <p key={warning} className={classes.warning}>
          <strong>Note</strong> {warning}
        </p>
      ))}
    </>
  );
}

function inTime(iso: string): string {
  const seconds = (Date.parse(iso) - Date.now()) / 1_000;
  return seconds > 0 ? ` (in ${duration(seconds)})` : "";
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

const SIGNS = ["=", "×", "×"];

function BatchSentence({ view }: { view: PlanView }) {
  const [explained, setExplained] = useState<string | null>(null);
  const gpus = valueAt(view.spec, ["resources", "gpus"]);
  const largest = valueAt(gpus, ["max"]);
  const devices = typeof gpus === "number" ? gpus : typeof largest === "number" ? largest : null;
  const batch = batchOf(view, devices);
  if (batch === null) {
    return (
      <>
        <p className={classes.sentence}>{devices === null ? "" : `${devices} GPU${devices === 1 ? "" : "s"}`}</p>
        <p className={classes.means}>A script owns its loop: nothing is promised about its batch.</p>
      </>
    );
  }
  const factors = [batch.size, ...batch.factors];
  const isKnown = factors.some(({ means }) => means === explained);
  return (
    <>
      <p className={classes.sentence} data-testid="batch-sentence">
        {factors.map((factor, index) => (
          <span className={classes.part} key={SIGNS[index - 1] === undefined ? "size" : index.toString()}>
            {index > 0 ? <span className={classes.sign}> {SIGNS[index - 1]} </span> : null}
            <Explained factor={factor} explain={setExplained} />
          </span>
        ))}
        {batch.words === null ? null : <span className={classes.words}> {batch.words}</span>}
      </p>
      <p className={classes.means} aria-live="polite">
        {isKnown ? explained : batch.size.means}
      </p>
    </>
  );
}

function Explained({ factor, explain }: { factor: Factor; explain: (means: string | null) => void }) {
  return (
    <Button
      variant="unstyled"
      className={classes.factor}
      aria-label={`${factor.text}: ${factor.means}`}
      onMouseEnter={() => explain(factor.means)}
      onMouseLeave={() => explain(null)}
      onFocus={() => explain(factor.means)}
      onBlur={() => explain(null)}
      onClick={() => explain(factor.means)}
    >
      {factor.text}
    </Button>
  );
}
