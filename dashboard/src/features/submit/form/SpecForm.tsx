/** The form: another view of the YAML. It has what most jobs need, and says what the field one is in means. */
import { type FocusEvent, useState } from "react";
import { CodeFields } from "../code/CodeFields";
import { type Unreadable, valueAt } from "../text/read";
import { type Form, FormContext } from "./context";
import { FieldHelp } from "./FieldHelp";
import { JobFields, LimitFields } from "./JobFields";
import { ScriptFields } from "./ScriptFields";
import classes from "./SpecForm.module.css";
import { TrainFields } from "./TrainFields";

interface Props {
  form: Form;
  /** Set where the text is no document now; `form` has then what it was before. */
  unreadable: Unreadable | null;
  replace: (text: string, by: string) => void;
}

export function SpecForm({ form, unreadable, replace }: Props) {
  const { value } = form.spec;
  const [asked, setAsked] = useState<string | null>(null);
  const kind = valueAt(value, ["kind"]);

  function follow({ target }: FocusEvent) {
    setAsked(target.closest<HTMLElement>("[data-pointer]")?.dataset.pointer ?? null);
  }

  return (
    <FormContext value={form}>
      <form className={classes.form} aria-label="The job's settings" onSubmit={(event) => event.preventDefault()}>
        {unreadable === null ? null : (
          <p className={classes.closed} role="status">
            The form is closed while the text is not YAML. Line {unreadable.line}: {unreadable.message}
          </p>
        )}
        <fieldset disabled={unreadable !== null} className={classes.all} onFocus={follow}>
          <JobFields replace={replace} />
          {kind === "train" ? <TrainFields /> : null}
          {kind === "script" ? <ScriptFields /> : null}
          <CodeFields />
          <LimitFields />
        </fieldset>
        <FieldHelp pointer={asked} value={value} />
      </form>
    </FormContext>
  );
}
