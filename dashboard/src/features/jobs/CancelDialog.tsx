/** Asks whether these jobs are meant, cancels them one by one, and says what became of each. */
import { Button, Modal } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { cancelJob, type JobView } from "@/api/generated";
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
    <Modal
      opened
      onClose={() => close(answers !== null)}
      title={`Cancel ${counted(jobs.length, "job")}`}
      closeButtonProps={{ "aria-label": "Close" }}
    >
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
      <div className={classes.foot}>
        {isDone ? (
          <>
            <span role="status">
              {counted(jobs.length - refused, "job")} cancelled{refused === 0 ? "" : `, ${refused} refused`}.
            </span>
            <Button data-autofocus onClick={() => close(true)}>
              Close
            </Button>
          </>
        ) : (
          <>
            <Button variant="default" onClick={() => close(answers !== null)}>
              {answers === null ? "Keep" : "Close"}
            </Button>
            <Button color="red" loading={answers !== null} onClick={() => void cancel()}>
              Cancel {counted(jobs.length, "job")}
            </Button>
          </>
        )}
      </div>
    </Modal>
  );
}
