/** Gives labels to the selected jobs, and removes some that they have. */
import { useState } from "react";
import { type JobView, type ListedJob, markJob } from "@/api/generated";
import { Checkbox, Textarea } from "@/components/mantine";
import { counted } from "@/lib/resources";
import { labelsIn, labelsText } from "../table/label-text";
import { type Action, LABEL } from "./actions";
import { EachDialog } from "./EachDialog";
import classes from "./LabelsDialog.module.css";

interface LabelsDialogProps {
  jobs: readonly ListedJob[];
  left: string;
  close: (wereAsked: boolean) => void;
}

export function LabelsDialog({ jobs, left, close }: LabelsDialogProps) {
  const [text, setText] = useState("");
  const [removed, setRemoved] = useState<readonly string[]>([]);
  const added = labelsIn(text);
  const changes = { ...Object.fromEntries(removed.map((key) => [key, null])), ...Object.fromEntries(added) };
  const toggle = (key: string) =>
    setRemoved(removed.includes(key) ? removed.filter((each) => each !== key) : [...removed, key]);
  return (
    <EachDialog
      action={labelling(changes)}
      jobs={jobs}
      left={left}
      isReady={Object.keys(changes).length > 0}
      close={close}
      form={
        <div className={classes.form}>
          <Textarea
            label="Add, one in a line: key=value"
            rows={2}
            spellCheck={false}
            data-autofocus
            value={text}
            onChange={(event) => setText(event.currentTarget.value)}
          />
          <Present jobs={jobs} removed={removed} toggle={toggle} />
        </div>
      }
    />
  );
}

interface PresentProps {
  jobs: readonly ListedJob[];
  removed: readonly string[];
  toggle: (key: string) => void;
}

/** The labels that the jobs have. */
function Present({ jobs, removed, toggle }: PresentProps) {
  const keys = [...new Set(jobs.flatMap(({ labels }) => Object.keys(labels)))].sort();
  if (keys.length === 0) return null;
  return (
    <fieldset className={classes.present}>
      <legend>Remove</legend>
      {keys.map((key) => {
        const having = jobs.filter(({ labels }) => key in labels);
        const values = [...new Set(having.flatMap(({ labels }) => labels[key] || []))].sort();
        const words = [values.join(", "), counted(having.length, "job")].filter((part) => part !== "").join(" · ");
        return (
          <Checkbox
            key={key}
            size="xs"
            label={`${key}: ${words}`}
            checked={removed.includes(key)}
            onChange={() => toggle(key)}
          />
        );
      })}
    </fieldset>
  );
}

/** The action that gives jobs these labels; null removes one. */
function labelling(labels: Record<string, string | null>): Action {
  const ask = async ({ id }: JobView) => {
    const { data: after } = await markJob({ path: { reference: id }, body: { labels }, throwOnError: true });
    return labelsText(after.labels).replaceAll("\n", ", ") || "no labels";
  };
  return { ...LABEL, ask };
}
