/** The text as it stands, kept by the browser's tab: a reload, or a look at another page, loses nothing of it. */
import { useCallback, useState } from "react";

export interface Draft {
  text: string;
  setText: (text: string) => void;
  /** What was there before it was replaced as a whole, until the next edit. */
  replaced: { text: string; by: string } | null;
  /** Put another text in its place; `by` says what did it. */
  replace: (text: string, by: string) => void;
  putBack: () => void;
  /** Whether the text was found in the browser's memory. */
  isKept: boolean;
  forget: () => void;
}

const KEY = "lockstep.submit";

/** `id` tells drafts apart: that of a new job, and one for each job that is cloned. */
export function useDraft(id: string, initial: string): Draft {
  const key = `${KEY}.${id}`;
  const [text, keep] = useState(() => sessionStorage.getItem(key) ?? initial);
  const [isKept, setIsKept] = useState(() => (sessionStorage.getItem(key) ?? initial) !== initial);
  const [replaced, setReplaced] = useState<Draft["replaced"]>(null);

  const write = useCallback(
    (next: string) => {
      keep(next);
      sessionStorage.setItem(key, next);
    },
    [key],
  );
  const setText = useCallback(
    (next: string) => {
      write(next);
      setReplaced(null);
      setIsKept(false);
    },
    [write],
  );
  return {
    text,
    setText,
    replaced,
    replace: (next, by) => {
      write(next);
      setReplaced({ text, by });
      setIsKept(false);
    },
    putBack: () => {
      if (replaced !== null) setText(replaced.text);
    },
    isKept,
    forget: useCallback(() => sessionStorage.removeItem(key), [key]),
  };
}
