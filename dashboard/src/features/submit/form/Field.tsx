/** One field of the spec: a label, a control, and under it what the service refuses. */
import { type ReactNode, useId } from "react";
import type { FieldProblem } from "@/api/generated";
import { Select } from "@/components/Select";
import { pointerOf } from "../text/pointer";
import { type Path, sourceAt } from "../text/read";
import { Typed } from "../text/write";
import { useField, useForm } from "./context";
import classes from "./Field.module.css";

interface Frame {
  label: string;
  path: Path;
  problems: readonly FieldProblem[];
  wide?: boolean;
  children: (control: { id: string; "aria-invalid": boolean; "aria-describedby": string | undefined }) => ReactNode;
}

/** The looks around a control. `path` lets the form say what the field is while it has the focus. */
export function Frame({ label, path, problems, wide, children }: Frame) {
  const id = useId();
  const wrong = problems.length > 0;
  return (
    <div className={classes.field} data-pointer={pointerOf(path)} data-wide={wide} data-wrong={wrong}>
      <label htmlFor={id}>{label}</label>
      {children({ id, "aria-invalid": wrong, "aria-describedby": wrong ? `${id}-problem` : undefined })}
      {wrong ? (
        <p id={`${id}-problem`} className={classes.problem}>
          {problems.map(({ pointer, message, next_step }) => (
            <span key={pointer + message}>
              {message}
              {next_step ? `: ${next_step}` : ""}{" "}
            </span>
          ))}
        </p>
      ) : null}
    </div>
  );
}

interface TextField {
  label: string;
  path: Path;
  /** `typed`: a number or a word, as YAML takes it. */
  as?: "text" | "typed";
  /** Stays in the text when it is emptied, and is then refused by name. */
  needed?: boolean;
  suggestions?: readonly string[];
  /** Said in an empty field where the service has said no default. */
  hint?: string;
  large?: boolean;
  wide?: boolean;
}

export function TextField({ label, path, as = "typed", needed, suggestions, hint, large, wide }: TextField) {
  const { spec } = useForm();
  const { value, set, remove, fallback, problems } = useField(path);
  const list = useId();
  const shown = sourceAt(spec, path);
  return (
    <Frame label={label} path={path} problems={problems} wide={wide}>
      {(control) => (
        <>
          <input
            {...control}
            className={large ? classes.large : classes.input}
            type="text"
            inputMode={as === "typed" ? "text" : undefined}
            autoComplete="off"
            spellCheck={false}
            list={suggestions ? list : undefined}
            value={shown ?? ""}
            disabled={shown === null}
            placeholder={shown === null ? "written in the YAML" : (fallback ?? hint ?? "")}
            onChange={({ target }) => {
              // An emptied field keeps its line until one leaves it, so that what is typed next stands where it stood.
              if (target.value === "") set(null);
              else set(as === "text" ? target.value : new Typed(target.value));
            }}
            onBlur={() => {
              if (!needed && value === null) remove();
            }}
          />
          {suggestions ? (
            <datalist id={list}>
              {suggestions.map((suggestion) => (
                <option key={suggestion} value={suggestion} />
              ))}
            </datalist>
          ) : null}
        </>
      )}
    </Frame>
  );
}

interface ChoiceField {
  label: string;
  path: Path;
  choices: readonly string[];
  onChoose?: (choice: string) => void;
}

export function ChoiceField({ label, path, choices, onChoose }: ChoiceField) {
  const { value, set, remove, fallback, problems } = useField(path);
  const chosen = value === undefined || value === null ? "" : String(value);
  // What is written and not known stays to be seen; the service says what is wrong with it.
  const known = chosen === "" || choices.includes(chosen) ? choices : [chosen, ...choices];
  return (
    <Frame label={label} path={path} problems={problems}>
      {(control) => (
        <Select
          {...control}
          className={classes.input}
          value={chosen}
          onChange={({ target }) => {
            if (onChoose !== undefined && target.value !== "") onChoose(target.value);
            else if (target.value === "") remove();
            else set(target.value);
          }}
        >
          <option value="">{fallback !== null && chosen === "" ? `${fallback} (default)` : "default"}</option>
          {known.map((choice) => (
            <option key={choice} value={choice}>
              {choice}
            </option>
          ))}
        </Select>
      )}
    </Frame>
  );
}

/** Every member of a union of words, in a list: the compiler says when one is missing, or is no member any more. */
export function every<T extends string>(members: Record<T, true>): T[] {
  return Object.keys(members) as T[];
}
