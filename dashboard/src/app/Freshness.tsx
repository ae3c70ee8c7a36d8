/** Number of old panels on the page, and the poll rate: live, calm or paused. */
import { setPace, usePace } from "@/api/pace";
import { Select } from "@/components/Select";
import { useOld } from "@/components/useOld";
import classes from "./Freshness.module.css";

export function Freshness() {
  const pace = usePace();
  const old = useOld();
  return (
    <div className={classes.freshness}>
      <span className={classes.age} data-testid="freshness" data-old={old !== null || undefined}>
        {old === null ? "" : old.count === 1 ? "1 panel is old" : `${old.count} panels are old`}
      </span>
      <Select
        size="sm"
        aria-label="How often the pages are brought up to date"
        className={classes.pace}
        value={pace.name}
        onChange={(event) => setPace(event.target.value as typeof pace.name)}
      >
        <option value="live">live</option>
        <option value="calm">calm</option>
        <option value="paused">paused</option>
      </Select>
    </div>
  );
}
