/** A script that writes nothing while its devices are idle: since when, where its ranks are, and their stacks. */
import { Link } from "@tanstack/react-router";
import type { JobView } from "@/api/generated";
import { Panel } from "@/components/Panel";
import { moment } from "@/lib/format";
import buttons from "./buttons.module.css";
import { useJobEvents } from "./job-queries";
import classes from "./OutcomePanel.module.css";
import { silencesOf } from "./silence";

export function SilenceNotice({ job, reference }: { job: JobView; reference: string }) {
  const { events } = useJobEvents(job);
  return silencesOf(job, events ?? []).map(({ event, stacks }) => (
    <Panel
      key={event.id}
      className={classes.panel}
      data-state="silent"
      title={`Silent on ${event.data?.node}`}
      role="status"
    >
      <p className={classes.message}>{event.message}</p>
      <p className={classes.advice}>
        Reported at <time dateTime={event.at}>{moment(event.at)}</time>. The job is not stopped.
      </p>
      {stacks === "" ? null : (
        <figure className={classes.figure}>
          <figcaption>Stacks of the ranks</figcaption>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard */}
          <pre tabIndex={0}>{stacks}</pre>
        </figure>
      )}
      <div className={classes.links}>
        <Link
          to="/jobs/$job"
          params={{ job: reference }}
          search={{ tab: "logs", stream: "launcher", ...(event.attempt === null ? {} : { attempt: event.attempt }) }}
          className={buttons.button}
        >
          Stacks in the logs
        </Link>
      </div>
    </Panel>
  ));
}
