/** Form of the labels and the note of a job. */
import { type FormEvent, useState } from "react";
import type { ListedJob } from "@/api/generated";
import { Button } from "@/components/Button";
import type { Opened } from "@/components/Opener";
import { PopoverOf } from "@/components/PopoverOf";
import { labelChanges, labelsText } from "./label-text";
import classes from "./MarksForm.module.css";
import { useMark } from "./useMark";

/** The service's own bound. */
const NOTE_CHARS_MAX = 2_000;

export function MarksForm({ job, ...opened }: { job: ListedJob } & Opened) {
  return (
    <PopoverOf {...opened}>
      <Form job={job} close={opened.close} />
    </PopoverOf>
  );
}

function Form({ job, close }: { job: ListedJob; close: () => void }) {
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
        <Button variant="filled" type="submit" disabled={isBusy}>
          Save
        </Button>
        <Button onClick={close}>Close</Button>
      </div>
    </form>
  );
}
