/** Weight and limits of a project, for an admin of the service: an empty field is no limit. */
import { type FormEvent, useState } from "react";
import { changeProject, type ProjectView } from "@/api/generated";
import { Button } from "@/components/Button";
import { Failed } from "@/components/Failed";
import { NativeSelect, TextInput } from "@/components/mantine";
import { refusedField } from "./fields";
import { type LimitName, limitChanges, NUMBERS, numberIn, startText } from "./limits";
import classes from "./PeoplePages.module.css";
import { useChange } from "./useChange";

export function LimitsForm({ project }: { project: ProjectView }) {
  const [weight, setWeight] = useState(String(project.weight));
  const [given, setGiven] = useState<Partial<Record<LimitName, string>>>({});
  const change = useChange(
    () => {
      const isSame = weight === String(project.weight);
      const body = { weight: isSame ? undefined : numberIn(weight), limits: limitChanges(given) };
      return changeProject({ path: { project: project.name }, body, throwOnError: true });
    },
    () => setGiven({}),
  );
  function submit(event: FormEvent) {
    event.preventDefault();
    change.mutate(undefined);
  }
  const refused = (name: string) => refusedField(change.error, name === "weight" ? "/weight" : `/limits/${name}`);
  const isNamed = ["weight", "budget_action", ...NUMBERS.keys()].some((name) => refused(name) !== null);
  const textOf = (name: LimitName) => given[name] ?? startText(project.limits[name]);
  const action = textOf("budget_action");
  const set = (name: LimitName, text: string) => setGiven({ ...given, [name]: text });
  return (
    <details className={classes.limits}>
      <summary>Weight and limits of {project.name}</summary>
      <form className={classes.form} onSubmit={submit}>
        <TextInput
          size="xs"
          label="Weight"
          inputMode="decimal"
          value={weight}
          error={refused("weight")}
          required
          onChange={(event) => setWeight(event.currentTarget.value)}
        />
        {[...NUMBERS].map(([name, label]) => (
          <TextInput
            key={name}
            size="xs"
            label={label}
            inputMode="decimal"
            value={textOf(name)}
            error={refused(name)}
            onChange={(event) => set(name, event.currentTarget.value)}
          />
        ))}
        <NativeSelect
          size="xs"
          label="Beyond these device-hours"
          data={[
            { value: "", label: "a warning" },
            { value: "hold", label: "no job starts" },
            ...(["", "warn", "hold"].includes(action) ? [] : [action]),
          ]}
          value={action === "warn" ? "" : action}
          onChange={(event) => set("budget_action", event.currentTarget.value)}
        />
        <Button type="submit" loading={change.isPending}>
          Set the limits
        </Button>
      </form>
      {change.error === null || isNamed ? null : <Failed error={change.error} />}
    </details>
  );
}
