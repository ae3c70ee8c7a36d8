/** Asks whether these jobs are meant, does it to them one by one, and says what became of each. */
import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import type { JobView } from "@/api/generated";
import { Dialog, DialogAnswer, DialogFoot } from "@/components/Dialog";
import { counted } from "@/lib/resources";
import { type Action, type Answer, askEach } from "./actions";
import classes from "./EachDialog.module.css";

interface EachDialogProps {
  action: Action;
  jobs: readonly JobView[];
  /** Sentences about the other jobs that are chosen, to which this is not done. */
  left: string;
  /** Fields of the action, before it is asked for. */
  form?: ReactNode;
  /** False until the fields are filled. */
  isReady?: boolean;
  close: (wereAsked: boolean) => void;
}

export function EachDialog({ action, jobs, left, form, isReady = true, close }: EachDialogProps) {
  const queries = useQueryClient();
  const [answers, setAnswers] = useState<readonly Answer[] | null>(null);
  const isDone = answers?.length === jobs.length;
  const refused = answers?.filter((answer) => answer.isRefused).length ?? 0;

  async function begin() {
    setAnswers([]);
    await askEach(
      jobs,
      (job) => action.ask(job, queries),
      (answer) => setAnswers((former) => [...(former ?? []), answer]),
    );
    for (const key of ["jobs", "job", "queue", "nodes"]) void queries.invalidateQueries({ queryKey: [key] });
  }

  return (
    <Dialog title={`${action.verb} ${counted(jobs.length, "job")}`} close={() => close(answers !== null)}>
      <p className={classes.says}>
        {action.warning} {left}
      </p>
      {answers === null ? form : null}
      <ul className={classes.jobs}>
        {jobs.map((job, place) => {
          const answer = answers?.[place];
          return (
            <li key={job.id}>
              <span className={classes.name}>{job.name}</span>{" "}
              <span className={answer?.isRefused ? classes.refused : classes.said}>
                {answer === undefined ? job.state : answer.isRefused ? `refused: ${answer.said}` : answer.said}
              </span>
            </li>
          );
        })}
      </ul>
      <DialogFoot>
        {isDone ? (
          <>
            <span role="status">
              {counted(jobs.length - refused, "job")} {action.done}
              {refused === 0 ? "" : `, ${refused} refused`}.
            </span>
            <DialogAnswer kind="main" onClick={() => close(true)}>
              Close
            </DialogAnswer>
          </>
        ) : (
          <>
            <DialogAnswer hasFocus={form === undefined} onClick={() => close(answers !== null)}>
              {answers === null && form === undefined ? "Keep" : "Close"}
            </DialogAnswer>
            <DialogAnswer
              kind={action.isDanger ? "danger" : "main"}
              isBusy={answers !== null || !isReady}
              onClick={() => void begin()}
            >
              {answers === null ? `${action.verb} ${counted(jobs.length, "job")}` : action.doing}
            </DialogAnswer>
          </>
        )}
      </DialogFoot>
    </Dialog>
  );
}
