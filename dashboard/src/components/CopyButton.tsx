/** Button that copies a text and confirms it. */
import { useEffect, useState } from "react";
import { copyText } from "@/lib/copy-text";
import classes from "./CopyButton.module.css";

const SAID_MS = 1_500;

export function CopyButton({ text, what, label }: { text: string; what: string; label?: string }) {
  const [said, setSaid] = useState<"copied" | "not copied" | null>(null);
  useEffect(() => {
    if (said === null) return;
    const timer = setTimeout(() => setSaid(null), SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  return (
    <button
      type="button"
      className={label === undefined ? classes.quiet : classes.button}
      aria-label={`Copy the ${what}`}
      onClick={async () => setSaid((await copyText(text)) ? "copied" : "not copied")}
    >
      <span aria-live="polite">{said ?? label ?? "copy"}</span>
    </button>
  );
}
