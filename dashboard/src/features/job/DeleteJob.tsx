/** Deletes a job that has ended, once somebody has read what goes with it. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { deleteJob, type JobView } from "@/api/generated";
import { Button } from "@/components/Button";
import { Dialog, DialogAnswer, DialogFoot } from "@/components/Dialog";
import { Failed } from "@/components/Failed";
import { counted } from "@/lib/resources";
import classes from "./JobActions.module.css";
import { useCheckpoints } from "./job-queries";

export function DeleteJob({ job }: { job: JobView }) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [asks, setAsks] = useState(false);
  const { data: checkpoints } = useCheckpoints(job);
  const remove = useMutation({
    mutationFn: () => deleteJob({ path: { reference: job.id }, throwOnError: true }),
    onSuccess: async () => {
      await navigate({ to: "/jobs" });
      queries.removeQueries({ queryKey: ["job", job.id] });
      await queries.invalidateQueries({ queryKey: ["jobs"] });
    },
  });
  const close = () => {
    setAsks(false);
    remove.reset();
  };
  const saved = checkpoints?.length ?? 0;
  return (
    <>
      <Button size="sm" isDanger onClick={() => setAsks(true)}>
        Delete
      </Button>
      {asks ? (
        <Dialog title={`Delete ${job.name}?`} close={close}>
          <p className={classes.says}>
            Its numbers, its log, its files{saved === 0 ? "" : `, its ${counted(saved, "checkpoint")}`} and the job
            itself are deleted. It cannot be taken back.
          </p>
          {remove.error === null ? null : <Failed error={remove.error} />}
          <DialogFoot>
            <DialogAnswer hasFocus onClick={close}>
              Keep it
            </DialogAnswer>
            <DialogAnswer kind="danger" isBusy={remove.isPending} onClick={() => remove.mutate()}>
              Delete the job
            </DialogAnswer>
          </DialogFoot>
        </Dialog>
      ) : null}
    </>
  );
}
