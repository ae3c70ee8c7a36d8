/** Adds jobs to the comparison: the newest ones, or those whose name holds what is typed. */
import { useDebouncedValue } from "@mantine/hooks";
import { useId, useState } from "react";
import { listJobs } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { Button } from "@/components/Button";
import { Input } from "@/components/Input";
import { StateBadge } from "@/components/StateBadge";
import { useNow } from "@/components/useNow";
import { COMPARED_MAX } from "@/lib/compared";
import { ago } from "@/lib/format";
import classes from "./Picker.module.css";
import { asked, hasAll, wordsOf } from "./search";

const ROWS = 8;
/** Of several words the service finds one; in so many of its jobs, the newest, the others are looked for here. */
const NEWEST = 100;
/** While one types on, nothing is asked. */
const REST_MS = 200;

interface PickerProps {
  chosen: ReadonlySet<string>;
  onAdd: (id: string) => void;
}

export function Picker({ chosen, onAdd }: PickerProps) {
  const [isOpen, setIsOpen] = useState(false);
  const [search, setSearch] = useState("");
  const list = useId();
  const now = useNow(10);
  const words = wordsOf(search);
  const [part] = useDebouncedValue(asked(words), REST_MS);
  const { data, error, isPlaceholderData } = usePolled({
    key: ["jobs", "newest", NEWEST, part ?? null],
    fetch: (signal) => listJobs({ query: { limit: NEWEST, search: part }, signal, throwOnError: true }),
    seconds: 5,
    enabled: isOpen,
    keepPrevious: true,
  });
  const found = (data?.items ?? []).filter((job) => !chosen.has(job.id) && hasAll(job, words));
  // What is not found in an answer to something else may be found in the next one.
  const isAnswered = data !== undefined && !isPlaceholderData && part === asked(words);
  const isFull = chosen.size >= COMPARED_MAX;
  return (
    <fieldset
      className={classes.picker}
      aria-label="Add jobs"
      onBlur={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget)) setIsOpen(false);
      }}
    >
      <Input
        size="sm"
        type="search"
        className={classes.field}
        placeholder={isFull ? `${COMPARED_MAX} jobs at most` : "Add a job by its name"}
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
            <Button variant="unstyled" onClick={() => onAdd(id)}>
              <span className={classes.name}>{name}</span>
              <StateBadge state={state} />
              <span className={classes.when}>{ago(created_at, now)}</span>
            </Button>
          </li>
        ))}
        {found.length > ROWS ? (
          <li className={classes.note}>{data?.next_cursor ? "Many" : found.length - ROWS} more: type to narrow</li>
        ) : null}
        {isAnswered && found.length === 0 ? (
          <li className={classes.note}>
            {data.next_cursor && words.length > 1
              ? `None of the newest ${NEWEST} with “${part}” has the other words, too`
              : "No other job has this in its name"}
          </li>
        ) : null}
        {error && !data ? <li className={classes.note}>{error.message}</li> : null}
      </ul>
    </fieldset>
  );
}
