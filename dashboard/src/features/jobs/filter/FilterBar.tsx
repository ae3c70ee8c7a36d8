/** Which jobs the list shows, and in which groups. Everything here is in the address, and the service does the filtering. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { JobTotals, ListedJob } from "@/api/generated";
import { Button } from "@/components/Button";
import { Select } from "@/components/Select";
import { StateBadge } from "@/components/StateBadge";
import { number } from "@/lib/format";
import type { RefusedPart } from "../refusals";
import { differingSettings, settingId } from "../table/columns";
import { ALL, changed, isFiltered, type JobsView, partsSet, STATES, toggled, unfiltered } from "../view";
import classes from "./FilterBar.module.css";
import { TokenField } from "./TokenField";
import { useSuggestions } from "./useSuggestions";

interface FilterBarProps {
  view: JobsView;
  /** The own name in a team; null for a person alone. */
  me: string | null;
  jobs: readonly ListedJob[];
  totals: JobTotals | undefined;
  refused: readonly RefusedPart[];
  /** `isSame`: it is the former view typed further, and no place of its own to go back to. */
  go: (view: JobsView, isSame?: boolean) => void;
  /** Controls at its end. */
  children: ReactNode;
}

export function FilterBar({ view, me, jobs, totals, refused, go, children }: FilterBarProps) {
  const suggestions = useSuggestions(jobs);
  const parts = partsSet(view, me);
  return (
    <section className={classes.bar} aria-label="Which jobs are shown">
      {me === null ? null : <Whose view={view} me={me} go={go} />}
      {parts.map(({ name, value, without }) => (
        <span key={name} className={classes.part}>
          {name}: {value}
          <Link to="/jobs" search={without} aria-label={`Remove ${name} ${value}`}>
            ×
          </Link>
        </span>
      ))}
      <TokenField
        filter={view.filter}
        refused={refused.filter(({ parameter }) => parameter === "filter")}
        suggestions={suggestions.tokens}
        onFocus={suggestions.askForNodes}
        onCommit={(filter, isSame) => go(changed(view, { filter }), isSame)}
      />
      <States view={view} totals={totals} go={go} />
      {isFiltered({ ...view, owner: view.owner === me ? undefined : view.owner }) ? (
        <Link to="/jobs" search={unfiltered(view)} className={classes.clear}>
          Clear
        </Link>
      ) : null}
      <Groups view={view} jobs={jobs} go={go} />
      {children}
    </section>
  );
}

type PartProps = Pick<FilterBarProps, "view" | "go">;

function Whose({ view, me, go }: PartProps & { me: string }) {
  const choices = [
    { name: "Mine", whose: me },
    { name: "All", whose: ALL },
  ];
  return (
    <fieldset className={classes.whose}>
      <legend className={classes.hidden}>Whose</legend>
      {choices.map(({ name, whose }) => (
        <Button
          key={name}
          className={classes.button}
          aria-pressed={view.owner === whose}
          onClick={() => go(changed(view, { owner: whose }))}
        >
          {name}
        </Button>
      ))}
    </fieldset>
  );
}

/** Jobs by state, of all pages: each is a filter that can be set and removed. */
function States({ view, totals, go }: PartProps & Pick<FilterBarProps, "totals">) {
  const shown = STATES.filter((state) => totals?.states[state] || view.state?.includes(state));
  return (
    <fieldset className={classes.states}>
      <legend className={classes.hidden}>State</legend>
      {shown.map((state) => (
        <Button
          key={state}
          className={classes.button}
          title={state}
          aria-pressed={view.state?.includes(state) ?? false}
          onClick={() => go(toggled(view, state))}
        >
          <StateBadge state={state} isPlain>
            <span className={classes.word}>{state}</span>
          </StateBadge>{" "}
          {number(totals?.states[state] ?? 0)}
        </Button>
      ))}
    </fieldset>
  );
}

const COLUMNS = ["owner", "project", "kind", "name"];
/** More of them are grouped by in the address. */
const SETTINGS_MAX = 12;

function Groups({ view, jobs, go }: PartProps & Pick<FilterBarProps, "jobs">) {
  const labels = [...new Set(jobs.flatMap((job) => Object.keys(job.labels)))].sort().map((key) => `label:${key}`);
  const settings = differingSettings(jobs)
    .slice(0, SETTINGS_MAX)
    .map(({ path }) => settingId(path));
  const present = view.group === undefined ? [] : [view.group];
  const options = [...new Set([...COLUMNS, ...labels, ...settings, ...present])];
  return (
    <Select
      className={classes.groups}
      aria-label="Group"
      value={view.group ?? ""}
      onChange={(event) => go(changed(view, { group: event.target.value || undefined, open: undefined }))}
    >
      <option value="">No groups</option>
      {options.map((option) => (
        <option key={option} value={option}>
          Group: {option.replace(/^label:/, "label ").replace(/^setting:/, "")}
        </option>
      ))}
    </Select>
  );
}
