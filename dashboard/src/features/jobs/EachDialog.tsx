/** Asks whether these jobs are meant, cancels them one by one, and says what became of each. */
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { cancelJob, type JobView } from "@/api/generated";
import { Dialog, DialogAnswer, DialogFoot } from "@/components/Dialog";
import { counted } from "@/lib/resources";
import classes from "./CancelDialog.module.css";
import { type Answer, cancelEach } from "./cancelling";

export function CancelDialog({ jobs, close }: { jobs: readonly JobView[]; close: (wereAsked: boolean) => void }) {
  const queries = useQueryClient();
  const [answers, setAnswers] = useState<readonly Answer[] | null>(null);
  const isDone = answers?.length === jobs.length;
  const refused = answers?.filter((answer) => answer.isRefused).length ?? 0;

  async function cancel() {
    setAnswers([]);
    const one = async (job: JobView) => (await cancelJob({ path: { reference: job.id }, throwOnError: true })).data;
    await cancelEach(jobs, one, (answer) => setAnswers((former) => [...(former ?? []), answer]));
    for (const key of ["jobs", "job", "queue", "nodes"]) void queries.invalidateQueries({ queryKey: [key] });
  }

  return (
    <Dialog title={`Cancel ${counted(jobs.length, "job")}`} close={() => close(answers !== null)}>
      <p className={classes.says}>
        What runs is asked to stop; a training job saves a checkpoint first. None is started again.
      </p>
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
              {counted(jobs.length - refused, "job")} cancelled{refused === 0 ? "" : `, ${refused} refused`}.
            </span>
            <DialogAnswer kind="main" onClick={() => close(true)}>
              Close
            </DialogAnswer>
          </>
        ) : (
          <>
            <DialogAnswer hasFocus onClick={() => close(answers !== null)}>
              {answers === null ? "Keep" : "Close"}
            </DialogAnswer>
            <DialogAnswer kind="danger" isBusy={answers !== null} onClick={() => void cancel()}>
              {answers === null ? `Cancel ${counted(jobs.length, "job")}` : "Cancelling"}
            </DialogAnswer>
          </>
        )}
      </DialogFoot>
    </Dialog>
  );
}
