/** Nodes that get no work, own jobs that failed, and budgets that are almost used up. */
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Button, looking } from "@/components/Button";
import { useClock } from "@/components/Clock";
import { Panel } from "@/components/Panel";
import classes from "./HomePage.module.css";
import { When } from "./When";
import { type Notice, noticeWords } from "./words";

const SHOWN = 3;
const ICONS = { node: "◐", job: "✕", budget: "!" } as const;

export function Attention({ notices }: { notices: readonly Notice[] }) {
  const [isOpen, setIsOpen] = useState(false);
  const more = notices.length - SHOWN;
  const shown = isOpen ? notices : notices.slice(0, SHOWN);
  return (
    <Panel className={classes.panel} aria-label="Needs attention">
      <div className={classes.head}>
        <h2>Needs attention</h2>
        {notices.length === 0 ? null : <span>{notices.length}</span>}
      </div>
      {notices.length === 0 ? <p className={classes.none}>Nothing.</p> : null}
      <ul className={classes.rows}>
        {shown.map((notice) => (
          <Row key={keyOf(notice)} notice={notice} />
        ))}
      </ul>
      {more > 0 ? (
        <Button variant="unstyled" className={classes.more} aria-expanded={isOpen} onClick={() => setIsOpen(!isOpen)}>
          {isOpen ? "Show fewer" : `${more} more`}
        </Button>
      ) : null}
    </Panel>
  );
}

function Row({ notice }: { notice: Notice }) {
  const { now } = useClock();
  const { what, is, detail, when } = noticeWords(notice, now);
  const isBad = notice.kind === "job" || (notice.kind === "node" && ["quarantined", "lost"].includes(notice.state));
  return (
    <li className={classes.notice} data-tone={isBad ? "bad" : "wait"}>
      <span aria-hidden className={classes.sign}>
        {ICONS[notice.kind]}
      </span>
      <div>
        <p>
          <strong>{what}</strong> {is}
        </p>
        <p className={classes.detail}>
          {detail}
          {detail !== "" && when !== null ? ", " : ""}
          {when === null ? null : <When when={when} />}
        </p>
      </div>
      <Target notice={notice} what={what} />
    </li>
  );
}

function Target({ notice, what }: { notice: Notice; what: string }) {
  const label = { ...looking({ size: "xs" }), "aria-label": `Open ${what}`, children: "Open" };
  if (notice.kind === "job") return <Link to="/jobs/$job" params={{ job: notice.id }} {...label} />;
  return notice.kind === "node" ? <Link to="/cluster" {...label} /> : <Link to="/projects" {...label} />;
}

function keyOf(notice: Notice): string {
  return `${notice.kind} ${notice.kind === "job" ? notice.id : notice.kind === "node" ? notice.name : notice.project}`;
}
