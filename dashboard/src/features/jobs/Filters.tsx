/** Which jobs the list shows. Everything here is in the address, and the service does the filtering. */
import { Link } from "@tanstack/react-router";
import { useId, useState } from "react";
import { Field } from "./Field";
import classes from "./Filters.module.css";
import type { Suggestions } from "./useSuggestions";
import {
  ALL,
  changed,
  isFiltered,
  isLabel,
  type JobsView,
  LABEL_CHARS_MAX,
  OWNER_CHARS_MAX,
  partOf,
  STATES,
  toggled,
  typedOf,
} from "./view";

interface Props {
  view: JobsView;
  /** The own name in a team; null for a person alone. */
  me: string | null;
  suggestions: Suggestions;
  /** `isSame`: it is the former view typed further, and no place of its own to go back to. */
  go: (view: JobsView, isSame?: boolean) => void;
}

export function Filters({ view, me, suggestions, go }: Props) {
  const { node, label, order } = view;
  const owner = typedOf(view.owner);
  const isMoreSet = [owner === me ? undefined : owner, node, label, order].some((one) => one !== undefined);
  const [isOpen, setIsOpen] = useState(isMoreSet);
  /** The fields are made anew with it: what one of them is still about to ask for would set a filter again. */
  const [resets, setResets] = useState(0);
  const more = useId();
  return (
    <section className={classes.filters} aria-label="Which jobs are shown">
      {me === null ? null : (
        <fieldset className={classes.states}>
          <legend className={classes.legend}>Whose</legend>
          {[
            { name: "Mine", whose: me },
            { name: "All", whose: ALL },
          ].map(({ name, whose }) => (
            <button
              key={name}
              type="button"
              className={classes.chip}
              aria-pressed={view.owner === whose}
              onClick={() => go(changed(view, { owner: whose }))}
            >
              {name}
            </button>
          ))}
        </fieldset>
      )}
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
      <div key={resets} className={classes.fields}>
        <Field
          label="Name or id"
          hint="a part of it"
          value={view.search}
          isSearch
          isLive
          onCommit={(search) => go(changed(view, { search }), view.search !== undefined)}
        />
        <button
          type="button"
          className={classes.opener}
          aria-expanded={isOpen}
          aria-controls={more}
          onClick={() => setIsOpen(!isOpen)}
        >
          {isOpen ? "Fewer filters" : "More filters"}
        </button>
        <div id={more} className={classes.more} data-open={isOpen}>
          <Field
            label="Owner"
            hint="a part of it"
            value={owner}
            isLive
            charsMax={OWNER_CHARS_MAX}
            suggestions={suggestions.owners}
            onCommit={(next) =>
              go(changed(view, { owner: next === undefined ? ALL : partOf(next) }), owner !== undefined)
            }
          />
          <Field
            label="Node"
            hint="where it ran"
            value={node}
            charsMax={OWNER_CHARS_MAX}
            suggestions={suggestions.nodes}
            onFocus={suggestions.askForNodes}
            onCommit={(next) => go(changed(view, { node: next }))}
          />
          <Field
            label="Label"
            hint="key=value"
            value={label}
            charsMax={LABEL_CHARS_MAX}
            wrong={(typed) => (isLabel(typed) ? null : "Write it as key=value.")}
            onCommit={(next) => go(changed(view, { label: next }))}
          />
          <label className={classes.field}>
            <span>Order</span>
            <select
              value={order ?? "newest"}
              onChange={(event) => go(changed(view, { order: event.target.value === "oldest" ? "oldest" : undefined }))}
            >
              <option value="newest">newest first</option>
              <option value="oldest">oldest first</option>
            </select>
          </label>
        </div>
        {isFiltered(view) ? (
          <Link
            to="/jobs"
            search={order ? { owner: ALL, order } : { owner: ALL }}
            className={classes.reset}
            onClick={() => setResets(resets + 1)}
          >
            Show all jobs
          </Link>
        ) : null}
      </div>
    </section>
  );
}
