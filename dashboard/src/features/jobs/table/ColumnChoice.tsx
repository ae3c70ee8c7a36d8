/** Choice of the columns: those of each job, any metric's last, lowest or highest value, and any setting. */
import { type KeyboardEvent, useState } from "react";
import type { ListedJob } from "@/api/generated";
import { Button } from "@/components/Button";
import { Input } from "@/components/Input";
import type { Opened } from "@/components/Opener";
import { PopoverOf } from "@/components/PopoverOf";
import { counted } from "@/lib/resources";
import { matches } from "@/lib/series";
import classes from "./ColumnChooser.module.css";
import { ColumnOrder } from "./ColumnOrder";
import {
  type ColumnInfo,
  columnsOf,
  differingSettings,
  metricId,
  metricOf,
  metricsIn,
  OF_JOBS,
  PARTS,
  type Part,
  settingId,
  settingsIn,
  withColumn,
} from "./columns";

/** More settings are found by typing. */
const SETTINGS_MAX = 12;

export interface ColumnChoiceProps {
  /** Those that are shown. */
  ids: readonly string[];
  jobs: readonly ListedJob[];
  choose: (ids: readonly string[]) => void;
  /** Null where the usual columns are shown. */
  reset: (() => void) | null;
  /** Null where this view is the default. */
  makeDefault: (() => void) | null;
}

export function ColumnChoice({ id, button, close, ...props }: ColumnChoiceProps & Opened) {
  return (
    <PopoverOf id={id} button={button} close={close} position="bottom-end">
      <Choice {...props} />
    </PopoverOf>
  );
}

function Choice({ ids: shown, jobs, choose: ask, reset, makeDefault }: ColumnChoiceProps) {
  const [search, setSearch] = useState("");
  const [from, setFrom] = useState(shown);
  /** What is chosen here is shown at once; the address follows a moment later, and another press may come before. */
  const [ids, setIds] = useState(shown);
  if (from.join() !== shown.join()) {
    setFrom(shown);
    setIds(shown);
  }
  const choose = (next: readonly string[]) => {
    setIds(next);
    ask(next);
  };
  const toggle = (id: string) => choose(ids.includes(id) ? ids.filter((each) => each !== id) : withColumn(ids, id));
  const typed = search.trim();
  const isMeant = (name: string) => matches(name, typed);
  const metrics = [...new Set([...metricsIn(jobs), ...ids.flatMap((id) => metricOf(id)?.name ?? [])])].sort();
  const settings = settingsOffered(jobs, ids, typed);
  const add = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || typed === "") return;
    event.preventDefault();
    const known = [...OF_JOBS.map(({ id }) => id), ...settings.map(settingId)];
    const id = known.find((each) => each === typed || each.endsWith(`.${typed}`) || each === `setting:${typed}`);
    choose(withColumn(ids, id ?? typed));
    setSearch("");
  };
  return (
    <div className={classes.choice}>
      <Input
        type="search"
        aria-label="Find a column"
        placeholder="Find a column; Enter adds a name"
        className={classes.search}
        value={search}
        spellCheck={false}
        data-autofocus
        onChange={(event) => setSearch(event.target.value)}
        onKeyDown={add}
      />
      <div className={classes.lists}>
        <Boxes title="Job" columns={OF_JOBS.filter(({ label }) => isMeant(label))} ids={ids} toggle={toggle} />
        <Metrics names={metrics.filter(isMeant)} ids={ids} toggle={toggle} />
        <Boxes title="Settings" columns={columnsOf(settings.map(settingId), jobs)} ids={ids} toggle={toggle} isLong />
        {typed === "" ? <ColumnOrder columns={columnsOf(ids, jobs)} choose={choose} /> : null}
      </div>
      <div className={classes.foot}>
        <Button size="xs" disabled={makeDefault === null} onClick={makeDefault ?? undefined}>
          Make this my default
        </Button>
        <Button size="xs" disabled={reset === null} onClick={reset ?? undefined}>
          Usual columns
        </Button>
      </div>
      <p className={classes.hint}>
        The default is for lists that are opened from within the dashboard: {counted(ids.length, "column")} in this
        order, the order of the jobs, and groups.
      </p>
    </div>
  );
}

/** Those that are shown, those that differ, and any other one that is searched for. */
function settingsOffered(jobs: readonly ListedJob[], ids: readonly string[], typed: string): string[] {
  const chosen = ids.flatMap((id) => (id.startsWith("setting:") ? [id.slice("setting:".length)] : []));
  const found = (typed === "" ? differingSettings(jobs) : settingsIn(jobs)).map(({ path }) => path);
  return [...new Set([...chosen, ...found])].filter((path) => matches(path, typed)).slice(0, SETTINGS_MAX);
}

interface BoxesProps {
  title: string;
  columns: readonly ColumnInfo[];
  ids: readonly string[];
  toggle: (id: string) => void;
  /** Shows the whole names. */
  isLong?: boolean;
}

function Boxes({ title, columns, ids, toggle, isLong = false }: BoxesProps) {
  if (columns.length === 0) return null;
  return (
    <fieldset className={isLong ? classes.long : classes.short}>
      <legend>{title}</legend>
      {columns.map(({ id, label, title: whole }) => (
        <label key={id}>
          <input type="checkbox" checked={ids.includes(id)} onChange={() => toggle(id)} />
          <span>{isLong ? (whole ?? label) : label}</span>
        </label>
      ))}
    </fieldset>
  );
}

function Metrics({ names, ids, toggle }: { names: readonly string[] } & Pick<BoxesProps, "ids" | "toggle">) {
  if (names.length === 0) return null;
  return (
    <fieldset className={classes.long}>
      <legend>Metrics</legend>
      {names.map((name) => (
        <div key={name} className={classes.metric}>
          <span title={name}>{name}</span>
          {(Object.keys(PARTS) as Part[]).map((part) => (
            <Button
              size="xs"
              key={part}
              aria-label={`${name}, ${PARTS[part]} value`}
              aria-pressed={ids.includes(metricId(name, part))}
              onClick={() => toggle(metricId(name, part))}
            >
              {PARTS[part]}
            </Button>
          ))}
        </div>
      ))}
    </fieldset>
  );
}
