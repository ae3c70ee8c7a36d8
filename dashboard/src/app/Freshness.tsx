/** How old the picture is, and the pace at which it is asked for: live, calm or paused. */

import { useConnection } from "@/api/connection";
import { setPace, usePace } from "@/api/pace";
import { useNow } from "@/components/useNow";
import classes from "./Freshness.module.css";

export function Freshness() {
  const pace = usePace();
  const { heardAt } = useConnection();
  const now = useNow();
  const seconds = heardAt === null ? null : Math.max(0, Math.floor((now - heardAt) / 1_000));
  return (
    <div className={classes.freshness}>
      <span className={classes.age} data-testid="freshness">
        {seconds === null ? "" : seconds < 2 ? "up to date" : `updated ${seconds} s ago`}
      </span>
      <select
        aria-label="How often the pages are brought up to date"
        className={classes.pace}
        value={pace.name}
        onChange={(event) => setPace(event.target.value as typeof pace.name)}
      >
        <option value="live">live</option>
        <option value="calm">calm</option>
        <option value="paused">paused</option>
      </select>
    </div>
  );
}
