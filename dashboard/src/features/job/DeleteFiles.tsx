/** Deletes files that a job keeps, after a confirmation. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { deleteJobFiles, type JobView } from "@/api/generated";
import { Button } from "@/components/Button";
import { Dialog, DialogAnswer, DialogFoot } from "@/components/Dialog";
import { Failed } from "@/components/Failed";
import classes from "./JobActions.module.css";

interface DeleteFilesProps {
  job: JobView;
  pattern: string;
  /** Name of the button. */
  button: string;
  /** Names or counts the files. */
  what: string;
}

export function DeleteFiles({ job, pattern, button, what }: DeleteFilesProps) {
  const queries = useQueryClient();
  const [asks, setAsks] = useState(false);
  const remove = useMutation({
    mutationFn: () => deleteJobFiles({ path: { reference: job.id }, query: { match: [pattern] }, throwOnError: true }),
    onSuccess: async () => {
      setAsks(false);
      await queries.invalidateQueries({ queryKey: ["job", job.id] });
    },
  });
  const close = () => {
    setAsks(false);
    remove.reset();
  };
  return (
    <>
      <Button size="sm" isDanger onClick={() => setAsks(true)}>
        {button}
      </Button>
      {asks ? (
        <Dialog title={`Delete from ${job.name}?`} close={close}>
          <p className={classes.says}>{what}. It cannot be taken back.</p>
          {remove.error === null ? null : <Failed error={remove.error} />}
          <DialogFoot>
            <DialogAnswer hasFocus onClick={close}>
              Keep
            </DialogAnswer>
            <DialogAnswer kind="danger" isBusy={remove.isPending} onClick={() => remove.mutate()}>
              Delete
            </DialogAnswer>
          </DialogFoot>
        </Dialog>
      ) : null}
    </>
  );
}
