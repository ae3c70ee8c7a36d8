/** Every event of a job, newest first, attempt by attempt. A long list is drawn as far as somebody asks for it. */
import { useMemo, useState } from "react";
import type { EventView } from "@/api/generated";
import { Failed } from "@/components/Failed";
import { Panel } from "@/components/Panel";
import { moment, number } from "@/lib/format";
import buttons from "./buttons.module.css";
import classes from "./EventsPanel.module.css";
import { chapters, type Entry, newestFirst } from "./timeline";

/** Entries that are drawn at first, and with each click more. */
const SHOWN = 200;

interface Story {
  events: readonly EventView[] | undefined;
  isWhole: boolean;
  error: Error | null;
  readOn: () => void;
}

export function EventsPanel({ story: { events, isWhole, error, readOn } }: { story: Story }) {
  const [count, setCount] = useState(SHOWN);
  const all = useMemo(() => chapters(events ?? []), [events]);
  const { told, older } = newestFirst(all, count);
  return (
    <Panel
      className={classes.panel}
      title={<>Events{events !== undefined && isWhole ? <span className={classes.soft}> newest first</span> : null}</>}
    >
      {events === undefined && error === null ? <div aria-busy="true" /> : null}
      {events === undefined && error !== null ? <Failed error={error} retry={readOn} /> : null}
      {events === undefined || isWhole ? null : (
        <p className={classes.reading} role="status">
          {number(events.length)} events are read, and there are newer ones.{" "}
          <button type="button" className={buttons.quiet} onClick={readOn}>
            Read on
          </button>
        </p>
      )}
      <ol className={classes.chapters}>
        {told.map(({ attempt, entries }) => (
          <li key={entries.at(-1)?.event.id}>
            <h3 className={classes.attempt}>{attempt === null ? "In the queue" : `Attempt ${attempt}`}</h3>
            <ol className={classes.entries}>
              {entries.map((entry) => (
                <OneEntry key={entry.event.id} entry={entry} />
              ))}
            </ol>
          </li>
        ))}
      </ol>
      {older > 0 ? (
        <button type="button" className={buttons.button} onClick={() => setCount(count + SHOWN)}>
          Show older events ({number(older)} more)
        </button>
      ) : null}
    </Panel>
  );
}

function OneEntry({ entry: { event, more } }: { entry: Entry }) {
  const last = more.at(-1);
  return (
    <li className={classes.entry} data-kind={event.kind}>
      <time className={classes.time} dateTime={(last ?? event).at}>
        {moment((last ?? event).at)}
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
