/**
 * Note on a panel with old data: age, reason, and a button to request again. It is one line in a
 * place that is kept free, so that nothing moves when it comes and goes.
 */
import type { QueryKey } from "@tanstack/react-query";
import { useConnection } from "@/api/connection";
import { duration } from "@/lib/format";
import { Button } from "./Button";
import classes from "./Stale.module.css";
import { useNow } from "./useNow";
import { useOld } from "./useOld";

/** For a whole page, in the free strip above it. A lost connection is said there instead. */
export function PageStale({ of }: { of: QueryKey }) {
  const { lostSince } = useConnection();
  return lostSince === null ? <Stale of={[of]} className={classes.page} /> : null;
}

/** `of` are the beginnings of the keys of the panel's queries. */
export function Stale({ of, className }: { of: readonly QueryKey[]; className?: string }) {
  const now = useNow();
  const old = useOld(of);
  if (old === null) return null;
  const age = `Not updated for ${duration((now - old.since) / 1_000)}`;
  const words = old.error === null ? age : `${age}: ${old.error.message}`;
  return (
    <p
      className={[classes.stale, className].filter(Boolean).join(" ")}
      data-testid="stale"
      title={`${words}; the last answer came at ${new Date(old.since).toLocaleTimeString()}`}
    >
      <span>{words}</span>
      <Button variant="outline" size="xs" onClick={old.retry}>
        Retry
      </Button>
    </p>
  );
}
