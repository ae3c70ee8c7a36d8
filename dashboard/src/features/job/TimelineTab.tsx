/** What happened to a job, oldest first: its attempts, and in each of them its events. */
import { useState } from "react";
import type { JobView } from "@/api/generated";
import { Failed } from "@/components/Failed";
import { useNow } from "@/components/useNow";
import { duration, moment, number } from "@/lib/format";
import buttons from "./buttons.module.css";
import { useJobEvents } from "./job-queries";
import classes from "./TimelineTab.module.css";
import { type Chapter, chapters, type Entry } from "./timeline";

/** Of the events of an attempt; earlier ones are shown when asked for. */
const ENTRIES_SHOWN = 200;

export function TimelineTab({ job }: { job: JobView }) {
  const { events, isWhole, error } = useJobEvents(job);
  if (events === undefined) return error === null ? <div aria-busy="true" /> : <Failed error={error} />;
  return (
    <section aria-labelledby="timeline-title" className={classes.panel}>
      <h2 id="timeline-title" className={classes.title}>
        What happened
      </h2>
      <ol className={classes.chapters}>
        {chapters(events, job).map((chapter) => (
          <li key={chapter.entries[0]?.event.id}>
            <OneChapter chapter={chapter} job={job} />
          </li>
        ))}
      </ol>
      {isWhole ? null : <p className={classes.soft}>Reading on…</p>}
    </section>
  );
}

function OneChapter({ chapter, job }: { chapter: Chapter; job: JobView }) {
  const [all, setAll] = useState(false);
  const now = useNow();
  const { attempt, nodes, worldSize, from, to, end, entries } = chapter;
  const hidden = all ? 0 : Math.max(0, entries.length - ENTRIES_SHOWN);
  const ended = to ?? (job.finished_at === null ? null : job.finished_at);
  const seconds = ((ended === null ? now : Date.parse(ended)) - Date.parse(from)) / 1_000;
  return (
    <>
      {attempt === null ? null : (
        <div className={classes.attempt}>
          <h3>Attempt {attempt}</h3>
          <span className={classes.soft}>
            {[
              nodes.length > 0 ? `on ${nodes.join(", ")}` : "",
              worldSize === null ? "" : worldSize === 1 ? "1 rank" : `${worldSize} ranks`,
              ended === null ? `for ${duration(seconds)} now` : `for ${duration(seconds)}`,
              end === null ? "" : `ended: ${end.reason}`,
            ]
              .filter((part) => part !== "")
              .join(" · ")}
          </span>
        </div>
      )}
      {hidden > 0 ? (
        <button type="button" className={buttons.quiet} onClick={() => setAll(true)}>
          Show {number(hidden)} earlier events
        </button>
      ) : null}
      <ol className={classes.entries}>
        {entries.slice(hidden).map((entry) => (
          <OneEntry key={entry.event.id} entry={entry} />
        ))}
      </ol>
    </>
  );
}

function OneEntry({ entry: { event, more } }: { entry: Entry }) {
  const last = more.at(-1);
  return (
    <li className={classes.entry} data-kind={event.kind}>
      <time className={classes.time} dateTime={event.at}>
        {moment(event.at)}
      </time>
      <span className={classes.kind}>{event.kind.replaceAll("_", " ")}</span>
      <span className={classes.message}>
        {last === undefined ? event.message : `${event.message} to ${last.message}: ${more.length + 1} checkpoints`}
        {event.actor === "lockstep" || event.message.includes(event.actor) ? null : (
          <span className={classes.soft}> · {event.actor}</span>
        )}
      </span>
    </li>
  );
}
