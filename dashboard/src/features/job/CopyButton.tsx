/** Copies a text, and says that it did. */
import { useEffect, useState } from "react";
import classes from "./buttons.module.css";

const SAID_MS = 1_500;

export function CopyButton({ text, what, label }: { text: string; what: string; label?: string }) {
  const [said, setSaid] = useState<"copied" | "not copied" | null>(null);
  useEffect(() => {
    if (said === null) return;
    const timer = setTimeout(() => setSaid(null), SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  async function copy() {
    try {
      // Not there where the page came over plain HTTP from another machine.
      await navigator.clipboard.writeText(text);
      setSaid("copied");
    } catch {
      setSaid("not copied");
    }
  }
  return (
    <button
      type="button"
      className={label === undefined ? classes.quiet : classes.button}
      aria-label={`Copy the ${what}`}
      onClick={() => void copy()}
    >
      <span aria-live="polite">{said ?? label ?? "copy"}</span>
    </button>
  );
}
