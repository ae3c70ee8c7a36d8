/** Labels and note of a job, edited in place by those who control it; others read the note. */
import { Popover } from "@mantine/core";
import { type FormEvent, useState } from "react";
import type { ListedJob } from "@/api/generated";
import { useRights } from "@/api/rights";
import classes from "./Marks.module.css";
import { useMark } from "./useMark";
import { labelChanges, labelsText } from "./words";

/** The service's own bound. */
const NOTE_CHARS_MAX = 2_000;

export function Marks({ job }: { job: ListedJob }) {
  const controls = useRights().controls(job);
  const [isOpen, setIsOpen] = useState(false);
  if (!controls) {
    return job.note ? (
      <span role="img" aria-label={`Note: ${job.note}`} title={job.note} className={classes.mark} data-has-note>
        <Pencil />
      </span>
    ) : null;
  }
  return (
    <Popover opened={isOpen} onChange={setIsOpen} trapFocus returnFocus transitionProps={{ duration: 0 }} width={320}>
      <Popover.Target>
        <button
          type="button"
          className={classes.mark}
          data-has-note={job.note ? true : undefined}
          aria-label={`Labels and note of ${job.name}`}
          title={job.note ?? "Labels and note"}
          onClick={() => setIsOpen(!isOpen)}
        >
          <Pencil />
        </button>
      </Popover.Target>
      <Popover.Dropdown>{isOpen ? <MarksForm job={job} close={() => setIsOpen(false)} /> : null}</Popover.Dropdown>
    </Popover>
  );
}

function MarksForm({ job, close }: { job: ListedJob; close: () => void }) {
  const mark = useMark(job.id);
  const [labels, setLabels] = useState(() => labelsText(job.labels));
  const [note, setNote] = useState(job.note ?? "");
  const [error, setError] = useState<string | null>(null);
  const [isBusy, setIsBusy] = useState(false);
  const save = async (event: FormEvent) => {
    event.preventDefault();
    setIsBusy(true);
    try {
      await mark({ labels: labelChanges(job.labels, labels), note: note.trim() });
      close();
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
      setIsBusy(false);
    }
  };
  return (
    <form className={classes.form} onSubmit={(event) => void save(event)}>
      <label>
        <span>Labels, one in a line: key=value</span>
        <textarea
          value={labels}
          rows={3}
          spellCheck={false}
          data-autofocus
          onChange={(event) => setLabels(event.target.value)}
        />
      </label>
      <label>
        <span>Note for all readers of the job</span>
        <textarea value={note} rows={3} maxLength={NOTE_CHARS_MAX} onChange={(event) => setNote(event.target.value)} />
      </label>
      {error === null ? null : (
        <p role="alert" className={classes.error}>
          {error}
        </p>
      )}
      <div className={classes.answers}>
        <button type="submit" disabled={isBusy} className={classes.save}>
          Save
        </button>
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </form>
  );
}

function Pencil() {
  return (
    <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" fill="none" stroke="currentColor">
      <path d="M3 13l.6-3L11 2.6a1.2 1.2 0 0 1 1.7 0l.7.7a1.2 1.2 0 0 1 0 1.7L6 12.4z" strokeWidth="1.3" />
    </svg>
  );
}
