/**
 * One filter that is typed.
 *
 * What the service looks for in parts is taken while one types; what it compares whole is taken with Enter, on leaving,
 * or with a suggestion, because half a word would only empty the list.
 */
import { useEffect, useId, useRef, useState } from "react";
import classes from "./Filters.module.css";
import { NAME_CHARS_MAX } from "./view";

/** Without a key pressed for so long, what is there is meant. */
export const PAUSE_MS = 250;

interface FieldProps {
  label: string;
  hint: string;
  value: string | undefined;
  charsMax?: number;
  /** The one that `/` goes to. */
  isSearch?: boolean;
  isLive?: boolean;
  suggestions?: readonly string[];
  /** What is wrong with a text that is not empty; null if nothing is. */
  wrong?: (typed: string) => string | null;
  onFocus?: () => void;
  onCommit: (value: string | undefined) => void;
}

export function Field(props: FieldProps) {
  const { label, hint, value, charsMax = NAME_CHARS_MAX, isSearch, isLive, suggestions = [], wrong } = props;
  const [typed, setTyped] = useState(value ?? "");
  const list = useId();
  /** What this field asked for last: its echo in the address must not undo what was typed meanwhile. */
  const asked = useRef(value);
  /** False for a text that the address gave: the pause after it asks for nothing. */
  const isTyped = useRef(false);
  useEffect(() => {
    if (value === asked.current) return;
    asked.current = value;
    isTyped.current = false;
    setTyped(value ?? "");
  }, [value]);
  const problem = typed.trim() === "" ? null : (wrong?.(typed.trim()) ?? null);
  const commit = (text: string) => {
    const next = text.trim() === "" ? undefined : text.trim();
    if (!isTyped.current || next === asked.current || (next !== undefined && (wrong?.(next) ?? null) !== null)) return;
    asked.current = next;
    props.onCommit(next);
  };
  // As of the newest view: another filter may be set before the pause is over.
  const latest = useRef(commit);
  latest.current = commit;
  useEffect(() => {
    if (!isLive) return;
    const timer = setTimeout(() => latest.current(typed), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [typed, isLive]);
  return (
    <label className={classes.field}>
      <span>{label}</span>
      <input
        type="search"
        value={typed}
        placeholder={hint}
        maxLength={charsMax}
        list={suggestions.length === 0 ? undefined : list}
        aria-invalid={problem !== null}
        data-page-search={isSearch ? "" : undefined}
        spellCheck={false}
        autoComplete="off"
        onFocus={props.onFocus}
        onChange={(event) => {
          isTyped.current = true;
          setTyped(event.target.value);
          if (event.target.value === "" || isWhole(event.nativeEvent)) commit(event.target.value);
        }}
        onBlur={() => commit(typed)}
        onKeyDown={(event) => {
          if (event.key === "Enter") commit(typed);
          if (event.key === "Escape") event.currentTarget.blur();
        }}
      />
      {suggestions.length === 0 ? null : (
        <datalist id={list}>
          {suggestions.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
      )}
      {problem === null ? null : <span className={classes.problem}>{problem}</span>}
    </label>
  );
}

/** A suggestion that was taken, or a text that was put there: not a key more of a word. */
function isWhole(event: Event): boolean {
  return !(event instanceof InputEvent) || event.inputType === "insertReplacementText";
}
