/** Star of a job, which all its readers see. */
import { useState } from "react";
import type { ListedJob } from "@/api/generated";
import { useRights } from "@/api/rights";
import { Button } from "@/components/Button";
import classes from "./cells.module.css";
import { useMark } from "./useMark";

export function Star({ job }: { job: ListedJob }) {
  const mark = useMark(job.id);
  const writes = useRights().writes(job);
  /** What is asked for, until the list has it. */
  const [wanted, setWanted] = useState<boolean | null>(null);
  const [error, setError] = useState<string | null>(null);
  const isStarred = wanted ?? job.starred ?? false;
  if (!writes) {
    return isStarred ? (
      <span role="img" aria-label="Starred" className={classes.star} data-starred>
        ★
      </span>
    ) : null;
  }
  const change = async () => {
    setWanted(!isStarred);
    try {
      await mark({ starred: !isStarred });
      setError(null);
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
    setWanted(null);
  };
  return (
    <Button
      variant="unstyled"
      className={classes.star}
      data-starred={isStarred || undefined}
      aria-pressed={isStarred}
      aria-label={error === null ? `Star ${job.name}` : `Star ${job.name}, not changed: ${error}`}
      title={error ?? (isStarred ? "Remove the star" : "Add a star")}
      onClick={() => void change()}
    >
      {isStarred ? "★" : "☆"}
    </Button>
  );
}
