/** Every event of a job, newest first, attempt by attempt. A long list is drawn as far as somebody asks for it. */
import { useMemo, useState } from "react";
import { Button } from "@/components/Button";
import { Failed } from "@/components/Failed";
import { Panel } from "@/components/Panel";
import { moment, number } from "@/lib/format";
import classes from "./EventsPanel.module.css";
import type { JobEvents } from "./job-queries";
import { chapters, type Entry, heading, newestFirst } from "./timeline";

/** Entries that are drawn at first, and with each click more. */
const SHOWN = 200;

export function EventsPanel({ story }: { story: JobEvents }) {
  const { events, isWhole, isReading, error, readAgain, readOlder } = story;
  const [count, setCount] = useState(SHOWN);
  const all = useMemo(() => chapters(events ?? []), [events]);
  const { told, older } = newestFirst(all, count);
  const showOlder = () => {
    setCount(count + SHOWN);
    if (!isWhole && older < SHOWN) readOlder();
  };
  return (
    <Panel
      className={classes.panel}
      title={
        <>
          Events <span className={classes.soft}>newest first</span>
        </>
      }
    >
      {events === undefined && error === null ? <div aria-busy="true" /> : null}
      {events === undefined && error !== null ? <Failed error={error} retry={readAgain} /> : null}
      <ol className={classes.chapters}>
        {told.map((part) => (
          <li key={part.entries.at(-1)?.event.id}>
            <h3 className={classes.attempt}>{heading(part)}</h3>
            <ol className={classes.entries}>
              {part.entries.map((entry) => (
                <OneEntry key={entry.event.id} entry={entry} />
              ))}
            </ol>
          </li>
        ))}
      </ol>
      {older > 0 || (events !== undefined && !isWhole) ? (
        <Button size="sm" disabled={older === 0 && isReading} onClick={showOlder}>
          {older === 0 && isReading
            ? "Reading older events…"
            : `Show older events${isWhole ? ` (${number(older)} more)` : ""}`}
        </Button>
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
