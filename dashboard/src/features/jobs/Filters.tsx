/** Which jobs the list shows. Everything here is in the address, and the service does the filtering. */
import { Link } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import classes from "./Filters.module.css";
import { changed, isFiltered, isLabel, type JobsView, LABEL_CHARS_MAX, NAME_CHARS_MAX, STATES, toggled } from "./view";

interface Props {
  view: JobsView;
  go: (view: JobsView) => void;
}

export function Filters({ view, go }: Props) {
  return (
    <section className={classes.filters} aria-label="Which jobs are shown">
      <fieldset className={classes.states}>
        <legend className={classes.legend}>State</legend>
        {STATES.map((state) => (
          <button
            key={state}
            type="button"
            className={classes.chip}
            aria-pressed={view.state?.includes(state) ?? false}
            onClick={() => go(toggled(view, state))}
          >
            {state}
          </button>
        ))}
      </fieldset>
      <div className={classes.fields}>
        <Field
          label="Name"
          hint="whole name"
          value={view.name}
          isSearch
          onCommit={(name) => go(changed(view, { name }))}
        />
        <Field
          label="Project"
          hint="whole name"
          value={view.project}
          onCommit={(project) => go(changed(view, { project }))}
        />
        <Field
          label="Label"
          hint="key=value"
          value={view.label}
          charsMax={LABEL_CHARS_MAX}
          wrong={(typed) => (isLabel(typed) ? null : "Write it as key=value.")}
          onCommit={(label) => go(changed(view, { label }))}
        />
        <label className={classes.field}>
          <span>Order</span>
          <select
            value={view.order ?? "newest"}
            onChange={(event) => go(changed(view, { order: event.target.value === "oldest" ? "oldest" : undefined }))}
          >
            <option value="newest">newest first</option>
            <option value="oldest">oldest first</option>
          </select>
        </label>
        {isFiltered(view) ? (
          <Link to="/jobs" search={view.order ? { order: view.order } : {}} className={classes.reset}>
            Show all jobs
          </Link>
        ) : null}
      </div>
    </section>
  );
}

interface FieldProps {
  label: string;
  hint: string;
  value: string | undefined;
  charsMax?: number;
  isSearch?: boolean;
  /** What is wrong with a text that is not empty; null if nothing is. */
  wrong?: (typed: string) => string | null;
  onCommit: (value: string | undefined) => void;
}

/** Taken with Enter or on leaving: the service compares whole values, so half a word would only empty the list. */
function Field({ label, hint, value, charsMax = NAME_CHARS_MAX, isSearch, wrong, onCommit }: FieldProps) {
  const [typed, setTyped] = useState(value ?? "");
  useEffect(() => setTyped(value ?? ""), [value]);
  const problem = typed.trim() === "" ? null : (wrong?.(typed.trim()) ?? null);
  const commit = () => {
    const next = typed.trim() === "" ? undefined : typed.trim();
    if (problem === null && next !== value) onCommit(next);
  };
  return (
    <label className={classes.field}>
      <span>{label}</span>
      <input
        type="search"
        value={typed}
        placeholder={hint}
        maxLength={charsMax}
        aria-invalid={problem !== null}
        data-page-search={isSearch ? "" : undefined}
        spellCheck={false}
        autoComplete="off"
        onChange={(event) => setTyped(event.target.value)}
        onBlur={commit}
        onKeyDown={(event) => {
          if (event.key === "Enter") commit();
          if (event.key === "Escape") event.currentTarget.blur();
        }}
      />
      {problem === null ? null : <span className={classes.problem}>{problem}</span>}
    </label>
  );
}
