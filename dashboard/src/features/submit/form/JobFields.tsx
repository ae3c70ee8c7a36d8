/** What every job has: its name, its kind and its devices; and how long and how often it may run. */
import type { JobSpec } from "@/api/generated";
import { JobSpecKind } from "@/api/generated/choices.gen";
import { Button } from "@/components/Button";
import { Select } from "@/components/Select";
import { removeAt, setAt } from "../text/edit";
import { valueAt } from "../text/read";
import { useProjects } from "../useProjects";
import { useField, useForm } from "./context";
import { Frame, TextField } from "./Field";
import classes from "./Field.module.css";
import { PairsField } from "./PairsField";
import { Section } from "./Section";

const SAYS: Record<JobSpec["kind"], string> = {
  train: "Lockstep owns the loop and keeps the promise about the batch.",
  script: "Your own torchrun script, run unchanged.",
};
/** The least that a section needs, where one changes to its kind. */
const BEGINNING: Record<JobSpec["kind"], unknown> = {
  train: { task: "causal_lm", batch: { size: 64, micro_size: "auto" }, steps: 100 },
  script: { command: ["train.py"] },
};

/** `replace` puts another text in the place of this one, so that it can be put back. */
export function JobFields({ replace }: { replace: (text: string, by: string) => void }) {
  const { spec } = useForm();
  const kind = useField(["kind"]);

  function chooseKind(chosen: string) {
    let text = setAt(spec.text, ["kind"], chosen);
    for (const other of JobSpecKind) if (other !== chosen) text = removeAt(text, [other]);
    if (valueAt(spec.value, [chosen]) === undefined && Object.hasOwn(BEGINNING, chosen)) {
      text = setAt(text, [chosen], BEGINNING[chosen as JobSpec["kind"]]);
    }
    replace(text, `kind ${chosen}`);
  }

  const says = Object.hasOwn(SAYS, String(kind.value)) ? SAYS[kind.value as JobSpec["kind"]] : undefined;
  return (
    <Section title="Job" says={says}>
      <TextField needed label="Name" path={["name"]} as="text" />
      <ProjectField />
      <Frame label="Kind" path={["kind"]} problems={kind.problems}>
        {(control) => (
          <Select
            {...control}
            className={classes.input}
            value={JobSpecKind.find((known) => known === kind.value) ?? ""}
            onChange={({ target }) => chooseKind(target.value)}
          >
            {JobSpecKind.some((known) => known === kind.value) ? null : <option value="">choose</option>}
            {JobSpecKind.map((known) => (
              <option key={known} value={known}>
                {known}
              </option>
            ))}
          </Select>
        )}
      </Frame>
      <GpuFields />
      <PairsField legend="Labels" noun="label" path={["labels"]} as="text" />
    </Section>
  );
}

/** In a team a choice among the projects that take jobs of the caller. */
function ProjectField() {
  const path = ["project"];
  const names = useProjects()?.names ?? [];
  const { value, set, problems } = useField(path);
  if (names.length === 0) return <TextField label="Project" path={path} as="text" hint="default" />;
  const chosen = value === undefined || value === null ? "" : String(value);
  return (
    <Frame label="Project" path={path} problems={problems}>
      {(control) => (
        <Select {...control} className={classes.input} value={chosen} onChange={({ target }) => set(target.value)}>
          {/* What is written and not among them stays to be seen; the service says what is wrong with it. */}
          {names.includes(chosen) ? null : <option value={chosen}>{chosen || "choose"}</option>}
          {names.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </Select>
      )}
    </Frame>
  );
}

/** A range is shown where the text has one, but not offered: the service does not take elastic jobs yet. */
function GpuFields() {
  const path = ["resources", "gpus"];
  const { value, set, problems } = useField(path);
  const isRange = typeof value === "object" && value !== null;
  return (
    <>
      {isRange ? (
        <>
          <TextField needed label="GPUs at least" path={[...path, "min"]} />
          <TextField needed label="GPUs at most" path={[...path, "max"]} />
        </>
      ) : (
        <TextField label="GPUs" path={path} />
      )}
      {isRange ? (
        <Button variant="link" className={classes.change} onClick={() => set(valueAt(value, ["max"]) ?? 1)}>
          Fixed number
        </Button>
      ) : null}
      {isRange
        ? problems
            .filter(({ pointer }) => pointer === "/resources/gpus")
            .map(({ message, next_step }) => (
              <p key={message} className={classes.problem} data-wide>
                {message}
                {next_step ? `: ${next_step}` : ""}
              </p>
            ))
        : null}
    </>
  );
}

export function LimitFields() {
  return (
    <Section title="Limits">
      <TextField label="Priority (0–100)" path={["priority"]} />
      <TextField label="Retries" path={["retry", "max"]} />
      <TextField label="Timeout (seconds)" path={["timeout_seconds"]} hint="none" />
    </Section>
  );
}
