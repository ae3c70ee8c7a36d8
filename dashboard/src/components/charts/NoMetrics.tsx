/** What stands in place of charts while a job has no series of its own. */
import { Empty } from "@/components/Empty";

const EXAMPLE = `echo '{"step": 0, "loss": 1.5}' >> "$LOCKSTEP_METRICS"`;

export function NoMetrics({ isLive }: { isLive: boolean }) {
  if (!isLive)
    return (
      <Empty title="This job reported no metrics" command={EXAMPLE}>
        <p>
          If it kept its points for some days only, its timeline says so. A training job reports by itself; a script
          appends lines such as this to the file that $LOCKSTEP_METRICS names:
        </p>
      </Empty>
    );
  return (
    <Empty title="No points yet" command={EXAMPLE}>
      <p>
        Charts appear with the first point. A training job reports by itself; a script appends lines such as this to the
        file that $LOCKSTEP_METRICS names:
      </p>
    </Empty>
  );
}
