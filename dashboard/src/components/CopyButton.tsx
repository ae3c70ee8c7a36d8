/** Button that copies a text and confirms it. */
import { useEffect, useState } from "react";
import { copyText } from "@/lib/copy-text";
import { Button, type Look } from "./Button";

const SAID_MS = 1_500;

interface CopyButtonProps extends Look {
  text: string;
  what: string;
  /** Without one it is as in a text. */
  label?: string;
}

export function CopyButton({ text, what, label, size }: CopyButtonProps) {
  const [said, setSaid] = useState<"copied" | "not copied" | null>(null);
  useEffect(() => {
    if (said === null) return;
    const timer = setTimeout(() => setSaid(null), SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  return (
    <Button
      variant={label === undefined ? "link" : "default"}
      size={size}
      aria-label={`Copy the ${what}`}
      onClick={async () => setSaid((await copyText(text)) ? "copied" : "not copied")}
    >
      <span aria-live="polite">{said ?? label ?? "copy"}</span>
    </Button>
  );
}
