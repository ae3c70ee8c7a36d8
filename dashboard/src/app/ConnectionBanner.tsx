/**
 * Banner while the service does not answer: the time since then, and a note that the data are old.
 */
import { useConnection } from "@/api/connection";
import { useNow } from "@/components/useNow";
import { duration } from "@/lib/format";
import classes from "./ConnectionBanner.module.css";

export function ConnectionBanner() {
  const { lostSince } = useConnection();
  const now = useNow();
  return (
    <div role="status" aria-live="polite" className={classes.place}>
      {lostSince === null ? null : (
        <div className={classes.banner} data-testid="connection-lost">
          <strong>Connection lost</strong> for {duration((now - lostSince) / 1_000)}. What you see is from before; the
          pages keep retrying.
        </div>
      )}
    </div>
  );
}
