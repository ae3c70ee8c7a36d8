/** The filter of a list of files: a part of a name, or a pattern. */
import { useEffect, useRef, useState } from "react";
import { Input } from "@/components/Input";
import classes from "./FilesTab.module.css";

const TYPING_MS = 300;

export function FileFilter({ value, onFilter }: { value: string; onFilter: (typed: string) => void }) {
  const [typed, setTyped] = useState(value);
  const send = useRef(onFilter);
  send.current = onFilter;
  const sent = useRef(value);
  if (value !== sent.current) {
    // The address changed by itself.
    sent.current = value;
    setTyped(value);
  }
  useEffect(() => {
    if (typed.trim() === sent.current) return;
    const timer = setTimeout(() => {
      sent.current = typed.trim();
      send.current(typed.trim());
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return (
    <Input
      size="sm"
      type="search"
      className={classes.filter}
      aria-label="Filter the files"
      placeholder="Part of a name, or *.pt, out/"
      data-page-search
      maxLength={200}
      spellCheck={false}
      autoComplete="off"
      value={typed}
      onChange={(event) => setTyped(event.target.value)}
    />
  );
}
