/** Labels and note of a job, edited in place by those who control it; others read the note. */
import { lazy } from "react";
import type { ListedJob } from "@/api/generated";
import { useRights } from "@/api/rights";
import { Opener } from "@/components/Opener";
import classes from "./Marks.module.css";

const load = () => import("./MarksForm");
const MarksForm = lazy(async () => ({ default: (await load()).MarksForm }));

export function Marks({ job }: { job: ListedJob }) {
  const writes = useRights().writes(job);
  if (!writes) {
    return job.note ? (
      <span role="img" aria-label={`Note: ${job.note}`} title={job.note} className={classes.mark} data-has-note>
        <Pencil />
      </span>
    ) : null;
  }
  return (
    <Opener
      popup="dialog"
      variant="unstyled"
      load={load}
      className={classes.mark}
      data-has-note={job.note ? true : undefined}
      aria-label={`Labels and note of ${job.name}`}
      title={job.note ?? "Labels and note"}
      opened={(opened) => <MarksForm {...opened} job={job} />}
    >
      <Pencil />
    </Opener>
  );
}

function Pencil() {
  return (
    <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" fill="none" stroke="currentColor">
      <path d="M3 13l.6-3L11 2.6a1.2 1.2 0 0 1 1.7 0l.7.7a1.2 1.2 0 0 1 0 1.7L6 12.4z" strokeWidth="1.3" />
    </svg>
  );
}
