/** Adds jobs to the comparison: the newest ones, or those whose name holds what is typed. */
import { useId, useState } from "react";
import { listJobs } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { StateBadge } from "@/components/StateBadge";
import { useNow } from "@/components/useNow";
import { ago } from "@/lib/format";
import classes from "./Picker.module.css";
import { MOST_JOBS } from "./view";

const ROWS = 8;
/** The API finds jobs by their whole name only: of these, the newest, names are searched here. */
const NEWEST = 200;

interface PickerProps {
  chosen: ReadonlySet<string>;
  onAdd: (id: string) => void;
}

export function Picker({ chosen, onAdd }: PickerProps) {
  const [isOpen, setIsOpen] = useState(false);
  const [search, setSearch] = useState("");
  const list = useId();
  const now = useNow(10);
  const { data, error } = usePolled({
    key: ["jobs", "newest", NEWEST],
    fetch: (signal) => listJobs({ query: { limit: NEWEST, order: "newest" }, signal, throwOnError: true }),
    seconds: 5,
    enabled: isOpen,
  });
  const words = search.toLowerCase().split(/\s+/);
  const found = (data?.items ?? []).filter(
    ({ id, name }) =>
      !chosen.has(id) && words.every((word) => name.toLowerCase().includes(word) || id.startsWith(word)),
  );
  const isFull = chosen.size >= MOST_JOBS;
  return (
    <fieldset
      className={classes.picker}
      aria-label="Add jobs"
      onBlur={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget)) setIsOpen(false);
      }}
    >
      <input
        type="search"
        className={classes.field}
        placeholder={isFull ? `${MOST_JOBS} jobs at most` : "Add a job by its name"}
        aria-label="Add a job by its name"
        disabled={isFull}
        value={search}
        aria-controls={list}
        onFocus={() => setIsOpen(true)}
        onChange={(event) => {
          setSearch(event.target.value);
          setIsOpen(true);
        }}
        onKeyDown={(event) => {
          if (event.key === "Escape") setIsOpen(false);
          if (event.key === "Enter" && found[0]) onAdd(found[0].id);
        }}
      />
      <ul id={list} className={classes.found} hidden={!isOpen || isFull} aria-label="Jobs that can be added">
        {found.slice(0, ROWS).map(({ id, name, state, created_at }) => (
          <li key={id}>
            <button type="button" onClick={() => onAdd(id)}>
              <span className={classes.name}>{name}</span>
              <StateBadge state={state} />
              <span className={classes.when}>{ago(created_at, now)}</span>
            </button>
          </li>
        ))}
        {data && found.length > ROWS ? (
          <li className={classes.note}>{found.length - ROWS} more: type to narrow</li>
        ) : null}
        {data && found.length === 0 ? (
          <li className={classes.note}>
            No {data.next_cursor ? `job of the newest ${NEWEST}` : "other job"} has this in its name
          </li>
        ) : null}
        {error && !data ? <li className={classes.note}>{error.message}</li> : null}
      </ul>
    </fieldset>
  );
}
