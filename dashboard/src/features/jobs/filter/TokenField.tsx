/**
 * The filter as tokens. A token that is finished is a chip: with a space, Enter, a suggestion, or on leaving.
 *
 * A word is looked for while it is typed. A condition is taken once it is finished, because half of one would be refused.
 */
import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { Button } from "@/components/Button";
import type { RefusedPart } from "../refusals";
import classes from "./TokenField.module.css";
import { FILTER_CHARS_MAX, isCondition, isOpen, tokensOf } from "./tokens";

/** Without a key pressed for so long, what is there is meant. */
export const PAUSE_MS = 250;

interface TokenFieldProps {
  filter: string | undefined;
  refused: readonly RefusedPart[];
  suggestions: readonly string[];
  onFocus: () => void;
  /** `isSame`: it is the former filter typed further, and no place of its own to go back to. */
  onCommit: (filter: string | undefined, isSame: boolean) => void;
}

export function TokenField({ filter, refused, suggestions, onFocus, onCommit }: TokenFieldProps) {
  const [tokens, setTokens] = useState(() => tokensOf(filter ?? ""));
  const [typed, setTyped] = useState("");
  const list = useId();
  /** What this field asked for last: its echo in the address must not undo what was typed meanwhile. */
  const asked = useRef(filter);
  /** True while the end of what was asked for is still being typed. */
  const isTyping = useRef(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (filter === asked.current) return;
    asked.current = filter;
    isTyping.current = false;
    setTokens(tokensOf(filter ?? ""));
    setTyped("");
  }, [filter]);

  const ask = (pieces: readonly string[], goesOn: boolean) => {
    const next = pieces.length === 0 ? undefined : pieces.join(" ");
    const isSame = isTyping.current;
    isTyping.current = goesOn;
    if (next === asked.current) return;
    asked.current = next;
    onCommit(next, isSame);
  };
  const finish = (text: string) => {
    const next = [...tokens, ...tokensOf(text)];
    setTokens(next);
    setTyped("");
    ask(next, false);
  };
  const change = (text: string, isWhole: boolean) => {
    const isFinished = /\s$/.test(text) && !isOpen(text);
    if (text.trim() !== "" && (isWhole || isFinished)) finish(text);
    else setTyped(text);
    if (text.trim() === "") ask(tokens, false);
  };
  /** Back into the field, to be changed there. */
  const edit = (place: number) => {
    const rest = tokens.filter((_, each) => each !== place);
    setTokens(typed.trim() === "" ? rest : [...rest, ...tokensOf(typed)]);
    setTyped(tokens[place] ?? "");
    input.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent<HTMLInputElement>) => {
    if (event.key === "Enter") finish(typed);
    if (event.key === "Escape") event.currentTarget.blur();
    if (event.key === "Backspace" && typed === "" && tokens.length > 0) {
      event.preventDefault();
      edit(tokens.length - 1);
    }
  };
  // As of the newest tokens: one of them may be removed before the pause is over.
  const pause = useRef(() => {});
  pause.current = () => {
    if (typed.trim() !== "" && !isCondition(typed)) ask([...tokens, ...tokensOf(typed)], true);
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: the pause begins with each key
  useEffect(() => {
    const timer = setTimeout(() => pause.current(), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [typed]);

  const isBad = (token: string) => refused.some(({ value }) => value === token);
  return (
    <div className={classes.whole}>
      <div className={classes.box}>
        {tokens.map((token, place) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: two tokens may be equal, and none has a state
          <span key={`${place} ${token}`} className={classes.token} data-bad={isBad(token) || undefined}>
            <Button variant="unstyled" title="Change" onClick={() => edit(place)}>
              {token}
            </Button>
            <Button
              variant="unstyled"
              aria-label={`Remove ${token}`}
              onClick={() => {
                const rest = tokens.filter((_, each) => each !== place);
                setTokens(rest);
                ask(rest, false);
              }}
            >
              ×
            </Button>
          </span>
        ))}
        <input
          ref={input}
          type="search"
          aria-label="Filter jobs"
          placeholder={tokens.length === 0 ? "name, owner:ada, label:mix, gpus>4, lr<1e-3, val/loss<2" : undefined}
          value={typed}
          maxLength={FILTER_CHARS_MAX}
          list={list}
          aria-invalid={refused.length > 0}
          data-page-search=""
          spellCheck={false}
          autoComplete="off"
          onFocus={onFocus}
          onChange={(event) => change(event.target.value, isWhole(event.nativeEvent))}
          onBlur={() => finish(typed)}
          onKeyDown={onKeyDown}
        />
        <datalist id={list}>
          {suggestions.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
      </div>
      {refused.length === 0 ? null : (
        <div className={classes.problems} role="alert">
          {refused.map(({ value, words }) => (
            <p key={value}>
              <strong>{value}</strong> {words}
            </p>
          ))}
        </div>
      )}
    </div>
  );
}

/** A suggestion that was taken, or a text that was put there: not a key more of a word. */
function isWhole(event: Event): boolean {
  return !(event instanceof InputEvent) || event.inputType === "insertReplacementText";
}
