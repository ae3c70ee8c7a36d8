/** A script that writes nothing while its devices are idle: since when, where its ranks are, and their stacks. */
import { Link } from "@tanstack/react-router";
import type { JobView } from "@/api/generated";
import { looking } from "@/components/Button";
import { moment } from "@/lib/format";
import { useJobEvents } from "./job-queries";
import classes from "./SilenceNotice.module.css";
import { silencesOf } from "./silence";

export function SilenceNotice({ job, reference }: { job: JobView; reference: string }) {
  const { events } = useJobEvents(job);
  return silencesOf(job, events ?? []).map(({ event, stacks }) => (
    <section key={event.id} className={classes.silence} role="status">
      <div className={classes.line}>
        <h2>Silent on {String(event.data?.node)}</h2>
        <p>{event.message}</p>
        <p className={classes.soft}>
          Reported at <time dateTime={event.at}>{moment(event.at)}</time>. The job is not stopped.
        </p>
        <Link
          to="/jobs/$job"
          params={{ job: reference }}
          search={{ tab: "logs", stream: "launcher", ...(event.attempt === null ? {} : { attempt: event.attempt }) }}
          {...looking({ size: "sm" })}
        >
          Stacks in the logs
        </Link>
      </div>
      {stacks === "" ? null : (
        <details>
          <summary>Stacks of the ranks</summary>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard */}
          <pre tabIndex={0}>{stacks}</pre>
        </details>
      )}
    </section>
  ));
}
