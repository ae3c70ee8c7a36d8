/** Names and values of a free object (labels, a task's arguments): a row each, and one to add another. */
import { useState } from "react";
import { Button } from "@/components/Button";
import { Input } from "@/components/Input";
import { renameAt, setAt } from "../text/edit";
import { pointerOf } from "../text/pointer";
import { type Path, sourceAt } from "../text/read";
import { Typed } from "../text/write";
import { problemsAt, useField, useForm } from "./context";
import classes from "./PairsField.module.css";

interface Pairs {
  legend: string;
  /** One of them, in words: "label". */
  noun: string;
  path: Path;
  as: "text" | "typed";
  /** Names that have fields of their own elsewhere. */
  except?: readonly string[];
}

export function PairsField({ legend, noun, path, as, except = [] }: Pairs) {
  const { spec, edit } = useForm();
  const { value, problems } = useField(path);
  const [added, setAdded] = useState("");
  const names =
    typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.keys(value).filter((name) => !except.includes(name))
      : [];
  const own = problems.filter(({ pointer }) => !except.some((name) => pointer.startsWith(pointerOf([...path, name]))));

  function add() {
    const name = added.trim();
    if (name === "") return;
    if (!names.includes(name)) edit((text) => setAt(text, [...path, name], as === "text" ? "" : new Typed("")));
    setAdded("");
  }

  return (
    <fieldset className={classes.pairs} data-pointer={pointerOf(path)}>
      <legend>{legend}</legend>
      {names.map((name, index) => (
        <Row
          key={`${index.toString()} of ${pointerOf(path)}`}
          name={name}
          path={path}
          as={as}
          noun={noun}
          spec={spec}
        />
      ))}
      <div className={classes.row}>
        <Input
          aria-label={`Name of another ${noun}`}
          placeholder={`another ${noun}`}
          autoComplete="off"
          spellCheck={false}
          value={added}
          onChange={({ target }) => setAdded(target.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.ctrlKey || event.metaKey) return;
            event.preventDefault();
            add();
          }}
        />
        <Button onClick={add} disabled={added.trim() === ""}>
          Add
        </Button>
      </div>
      {own.map(({ pointer, message, next_step }) => (
        <p key={pointer + message} className={classes.problem}>
          {pointer.slice(pointerOf(path).length + 1)} {message}
          {next_step ? `: ${next_step}` : ""}
        </p>
      ))}
    </fieldset>
  );
}

interface RowOf {
  name: string;
  noun: string;
  path: Path;
  as: "text" | "typed";
  spec: Parameters<typeof sourceAt>[0];
}

function Row({ name, noun, path, as, spec }: RowOf) {
  const here = [...path, name];
  const { edit, problems } = useForm();
  const { set, remove } = useField(here);
  const shown = sourceAt(spec, here);
  const wrong = problemsAt(problems, here).length > 0;
  return (
    <div className={classes.row} data-wrong={wrong}>
      <Input
        aria-label={`Name of the ${noun} ${name}`}
        autoComplete="off"
        spellCheck={false}
        defaultValue={name}
        key={name}
        onBlur={({ target }) => {
          const next = target.value.trim();
          if (next === "") target.value = name;
          else if (next !== name) edit((text) => renameAt(text, here, next));
        }}
      />
      <Input
        aria-label={`Value of the ${noun} ${name}`}
        aria-invalid={wrong}
        autoComplete="off"
        spellCheck={false}
        value={shown ?? ""}
        disabled={shown === null}
        placeholder={shown === null ? "written in the YAML" : ""}
        onChange={({ target }) => set(as === "text" ? target.value : new Typed(target.value))}
      />
      <Button aria-label={`Remove the ${noun} ${name}`} title="Remove" onClick={remove}>
        ✕
      </Button>
    </div>
  );
}
