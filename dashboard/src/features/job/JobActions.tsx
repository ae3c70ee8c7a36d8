/** What can be done with a job: pause it, cancel it, submit it again, continue it, delete it. */
import { useClickOutside } from "@mantine/hooks";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { cancelJob, type JobView } from "@/api/generated";
import { useRights } from "@/api/rights";
import { Button, looking } from "@/components/Button";
import { Dialog, DialogAnswer, DialogFoot } from "@/components/Dialog";
import { Failed } from "@/components/Failed";
import { hasEnded } from "@/lib/ended";
import { ContinueJob } from "./ContinueJob";
import { DeleteJob } from "./DeleteJob";
import classes from "./JobActions.module.css";
import { PauseJob } from "./PauseJob";

/** What the page for a new job is given: the spec of this one, and a checkpoint of it (`init_from`) to start from. */
export function cloneStart(id: string, checkpoint?: number): { clone: string; from?: string } {
  return checkpoint === undefined ? { clone: id } : { clone: id, from: String(checkpoint) };
}

export function JobActions({ job }: { job: JobView }) {
  const queries = useQueryClient();
  const [asks, setAsks] = useState(false);
  // Below some width the buttons are a list that opens.
  const [isOpen, setIsOpen] = useState(false);
  const place = useClickOutside<HTMLFieldSetElement>(() => setIsOpen(false));
  const cancel = useMutation({
    mutationFn: () => cancelJob({ path: { reference: job.id }, throwOnError: true }),
    onSuccess: async () => {
      setAsks(false);
      await Promise.all([
        queries.invalidateQueries({ queryKey: ["job"] }),
        queries.invalidateQueries({ queryKey: ["jobs"] }),
        queries.invalidateQueries({ queryKey: ["queue"] }),
      ]);
    },
  });
  const rights = useRights();
  const controls = rights.controls(job);
  const submits = rights.has("job.submit");
  const reads = submits && rights.has("checkpoint.read", job.project);
  const close = () => {
    setAsks(false);
    cancel.reset();
  };
  return (
    <fieldset
      ref={place}
      className={classes.actions}
      aria-label="Actions"
      onKeyDown={({ key }) => {
        if (key === "Escape") setIsOpen(false);
      }}
    >
      {controls || submits ? (
        <Button
          size="sm"
          className={classes.more}
          aria-expanded={isOpen}
          aria-label="More actions"
          onClick={() => setIsOpen(!isOpen)}
        >
          ⋯
        </Button>
      ) : null}
      <div className={classes.buttons} data-open={isOpen}>
        {!controls || hasEnded(job) ? null : <PauseJob job={job} />}
        {!controls || hasEnded(job) ? null : (
          <Button
            size="sm"
            isDanger
            disabled={job.intent === "cancel"}
            title={job.stop_grace?.reason}
            onClick={() => setAsks(true)}
          >
            {job.intent === "cancel" ? `Cancelling…${limitOf(job)}` : "Cancel"}
          </Button>
        )}
        {reads && (job.state === "failed" || job.state === "cancelled") ? <ContinueJob job={job} /> : null}
        {submits ? (
          <Link
            to="/submit"
            search={cloneStart(job.id)}
            {...looking({ size: "sm" })}
            title="A new job with this one's spec"
          >
            Clone
          </Link>
        ) : null}
        {rights.writes(job) && hasEnded(job) ? <DeleteJob job={job} /> : null}
      </div>
      {asks ? (
        <Dialog title={`Cancel ${job.name}?`} close={close}>
          <p className={classes.says}>{whatCancellingDoes(job)}</p>
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
      ) : null}
    </fieldset>
  );
}

/** The longest time until the kill of its processes, once a stop is requested. */
function limitOf({ stop_grace: grace }: JobView): string {
  return grace ? ` at most ${grace.seconds} s` : "";
}

function whatCancellingDoes({ state, kind }: JobView): string {
  if (state === "queued") return "Nothing of it runs. It leaves the queue at once.";
  if (state === "paused") return "Nothing of it runs. It cannot be resumed any more.";
  if (kind === "train") {
    return "It is asked to stop: it ends its step, saves a checkpoint, and stops. Its checkpoints stay, and a new job can start from them.";
  }
  return "Its processes are asked to stop and have time to save: 30 s unless the spec gives another. Its logs and numbers stay.";
}
