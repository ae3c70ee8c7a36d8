/** Note on a panel with old data: age, reason, and a button to request again. */
import type { QueryKey } from "@tanstack/react-query";
import { duration } from "@/lib/format";
import classes from "./Stale.module.css";
import { useNow } from "./useNow";
import { useOld } from "./useOld";

/** `of` is the beginning of the keys of the panel's queries. */
export function Stale({ of, className }: { of: QueryKey; className?: string }) {
  const old = useOld(of);
  return old === null ? null : (
    <StaleNote since={old.since} error={old.error} retry={old.retry} className={className} />
  );
}

interface StaleNoteProps {
  since: number;
  error: unknown;
  retry: () => void;
  className?: string;
}

export function StaleNote({ since, error, retry, className }: StaleNoteProps) {
  const now = useNow();
  return (
    <p
      className={[classes.stale, className].filter(Boolean).join(" ")}
      data-testid="stale"
      title={`Last answer at ${new Date(since).toLocaleTimeString()}`}
    >
      <span>
        Not updated for {duration((now - since) / 1_000)}
        {error instanceof Error ? `: ${error.message}` : ""}
      </span>
      <button type="button" onClick={retry}>
        Retry
      </button>
    </p>
  );
}
