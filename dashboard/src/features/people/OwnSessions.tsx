/** The own sessions, each of which is one sign-in: end one, or all others. */
import { endSession, listSessions, type SessionView } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { Button } from "@/components/Button";
import { Clock, useClock } from "@/components/Clock";
import { Failed } from "@/components/Failed";
import { SkeletonRows } from "@/components/SkeletonRows";
import { ago, moment } from "@/lib/format";
import { browserWords } from "./browsers";
import classes from "./PeoplePages.module.css";
import { useChange } from "./useChange";

const KEY = ["people", "sessions"];

export function OwnSessions() {
  const { data, error, refetch } = usePolled({
    key: KEY,
    fetch: (signal) => listSessions({ signal, throwOnError: true }),
    seconds: 30,
  });
  if (data === undefined && error !== null) return <Failed error={error} retry={() => void refetch()} />;
  if (data === undefined) return <SkeletonRows label="The sessions are loading" />;
  return (
    <Clock of={KEY}>
      <Sessions sessions={data.items} />
    </Clock>
  );
}

function Sessions({ sessions }: { sessions: readonly SessionView[] }) {
  const others = sessions.filter(({ is_own }) => !is_own);
  const endOthers = useChange(async () => {
    for (const { id } of others) await endSession({ path: { id }, throwOnError: true });
  });
  return (
    <section className={classes.panel} aria-label="Sessions">
      <div className={classes.head}>
        <h2>Sessions</h2>
        <span className={classes.fact}>A session is one sign-in, of a browser or of a command.</span>
        {others.length < 2 ? null : (
          <Button
            className={classes.end}
            size="xs"
            loading={endOthers.isPending}
            onClick={() => endOthers.mutate(undefined)}
          >
            {others.length === sessions.length ? "End all sessions" : "End all other sessions"}
          </Button>
        )}
      </div>
      {endOthers.error === null ? null : <Failed error={endOthers.error} />}
      {sessions.length === 0 ? <p className={classes.note}>You have no session.</p> : <Table sessions={sessions} />}
    </section>
  );
}

function Table({ sessions }: { sessions: readonly SessionView[] }) {
  return (
    <table className={classes.cards}>
      <caption className={classes.caption}>Your sessions, newest first</caption>
      <thead>
        <tr>
          <th scope="col">Browser</th>
          <th scope="col">Address</th>
          <th scope="col">Since</th>
          <th scope="col">Last request</th>
          <th scope="col">
            <span className={classes.caption}>End</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {sessions.map((session) => (
          <Row key={session.id} session={session} />
        ))}
      </tbody>
    </table>
  );
}

function Row({ session }: { session: SessionView }) {
  const { now } = useClock();
  const browser = browserWords(session.agent);
  const end = useChange(() => endSession({ path: { id: session.id }, throwOnError: true }));
  return (
    <tr>
      <th scope="row" title={session.agent}>
        {browser}
      </th>
      <td data-name="Address">{session.address}</td>
      <td data-name="Since" className={classes.time}>
        {moment(session.created_at)}
      </td>
      <td data-name="Last request" className={classes.time}>
        {ago(session.seen_at, now)}
      </td>
      <td>
        {session.is_own ? (
          <strong>this session</strong>
        ) : (
          <Button
            size="xs"
            aria-label={`End the session of ${browser} since ${moment(session.created_at)}`}
            loading={end.isPending}
            onClick={() => end.mutate(undefined)}
          >
            End
          </Button>
        )}
        {end.error === null ? null : <Failed error={end.error} />}
      </td>
    </tr>
  );
}
