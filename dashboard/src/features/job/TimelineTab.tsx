/** What happened to a job: its attempts, and below them every event of each. */
import type { JobView } from "@/api/generated";
import { AttemptsPanel } from "./AttemptsPanel";
import { EventsPanel } from "./EventsPanel";
import { useJobEvents } from "./job-queries";
import classes from "./TimelineTab.module.css";

/** Enough for the steps from which the newest attempts went on; of a longer story the rest is read when asked for. */
const EVENTS_READ = 5_000;

export function TimelineTab({ job }: { job: JobView }) {
  const story = useJobEvents(job, EVENTS_READ);
  return (
    <div className={classes.parts}>
      <AttemptsPanel job={job} events={story.events} />
      <EventsPanel story={story} />
    </div>
  );
}
