/** The priority of a job that waits. A caller who may change the job does so here. */
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { type JobView, markJob } from "@/api/generated";
import { Button } from "@/components/Button";
import { Input } from "@/components/Input";
import classes from "./QueueTable.module.css";
import { useChanged } from "./useChanged";

/** As the service limits it. */
const PRIORITY_MAX = 100;

export function PriorityCell({ job, writes }: { job: JobView; writes: boolean }) {
  const [given, setGiven] = useState<string | null>(null);
  const changed = useChanged();
  const change = useMutation({
    mutationFn: (priority: number) => markJob({ path: { reference: job.id }, body: { priority }, throwOnError: true }),
    onSuccess: () => {
      close();
      changed();
    },
  });
  const close = () => {
    setGiven(null);
    change.reset();
  };
  if (!writes) return <>{job.priority}</>;
  if (given === null) {
    return (
      <Button
        size="xs"
        aria-label={`Priority ${job.priority} of ${job.name}: change`}
        title="Change the priority"
        onClick={() => setGiven(String(job.priority))}
      >
        {job.priority}
      </Button>
    );
  }
  return (
    <form
      className={classes.priority}
      onSubmit={(event) => {
        event.preventDefault();
        change.mutate(Number(given));
      }}
      onKeyDown={(event) => {
        if (event.key === "Escape") close();
      }}
    >
      <Input
        size="xs"
        type="number"
        required
        min={0}
        max={PRIORITY_MAX}
        // It takes the place of the button that was pressed.
        autoFocus
        aria-label={`Priority of ${job.name}`}
        value={given}
        onChange={(event) => setGiven(event.target.value)}
      />
      <Button size="xs" type="submit" disabled={change.isPending}>
        Set
      </Button>
      {change.error === null ? null : (
        <span role="alert" className={classes.refused}>
          {change.error.message}
        </span>
      )}
    </form>
  );
}
