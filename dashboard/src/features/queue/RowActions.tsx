/** Actions on a job that waits: show why, and cancel it. */
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { cancelJob, type JobView } from "@/api/generated";
import { Button } from "@/components/Button";
import { Dialog, DialogAnswer, DialogFoot } from "@/components/Dialog";
import { Failed } from "@/components/Failed";
import classes from "./QueueTable.module.css";
import { useChanged } from "./useChanged";

interface Props {
  job: JobView;
  controls: boolean;
  isOpen: boolean;
  toggle: () => void;
}

export function RowActions({ job, controls, isOpen, toggle }: Props) {
  const [asks, setAsks] = useState(false);
  return (
    <span className={classes.actions}>
      <Button size="xs" aria-label={`Why ${job.name} waits`} aria-expanded={isOpen} onClick={toggle}>
        Why
      </Button>
      {controls ? (
        <Button size="xs" aria-label={`Cancel ${job.name}`} onClick={() => setAsks(true)}>
          Cancel
        </Button>
      ) : null}
      {asks ? <CancelDialog job={job} close={() => setAsks(false)} /> : null}
    </span>
  );
}

function CancelDialog({ job, close }: { job: JobView; close: () => void }) {
  const changed = useChanged();
  const cancel = useMutation({
    mutationFn: () => cancelJob({ path: { reference: job.id }, throwOnError: true }),
    onSuccess: () => {
      close();
      changed();
    },
  });
  return (
    <Dialog title={`Cancel ${job.name}?`} close={close}>
      <p className={classes.says}>Nothing of it runs. It leaves the queue at once.</p>
      {cancel.error === null ? null : <Failed error={cancel.error} />}
      <DialogFoot>
        <DialogAnswer hasFocus onClick={close}>
          Keep it
        </DialogAnswer>
        <DialogAnswer kind="danger" isBusy={cancel.isPending} onClick={() => cancel.mutate()}>
          Cancel the job
        </DialogAnswer>
      </DialogFoot>
    </Dialog>
  );
}
