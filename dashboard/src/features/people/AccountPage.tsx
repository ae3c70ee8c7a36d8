/** The own account: roles, password, sessions and tokens. */
import { Link } from "@tanstack/react-router";
import { useCaller } from "@/api/caller";
import type { CallerView } from "@/api/generated";
import { useRights } from "@/api/rights";
import { Failed } from "@/components/Failed";
import { SkeletonRows } from "@/components/SkeletonRows";
import { usePageTitle } from "@/components/usePageTitle";
import { moment } from "@/lib/format";
import { OwnSessions } from "./OwnSessions";
import { OwnTokens } from "./OwnTokens";
import { PasswordForm } from "./PasswordForm";
import classes from "./PeoplePages.module.css";

export function AccountPage() {
  usePageTitle("Account");
  const { data: caller, error, refetch } = useCaller();
  const rights = useRights();
  return (
    <>
      <h1 className={classes.title}>Account</h1>
      {caller === undefined && error !== null ? <Failed error={error} retry={() => void refetch()} /> : null}
      {caller === undefined && error === null ? <SkeletonRows label="The account is loading" /> : null}
      {caller === undefined ? null : (
        <>
          <p className={classes.summary}>{accessWords(caller)}</p>
          <Person caller={caller} />
          {rights.has("token.write") ? <Credentials caller={caller} /> : null}
        </>
      )}
    </>
  );
}

function accessWords({ credential, expires_at, scopes }: CallerView): string {
  if (credential === "none") return "This service asks for no sign-in.";
  const until = expires_at === null ? "" : ` until ${moment(expires_at)}`;
  const narrowed = scopes === null ? "" : ` with the scopes ${scopes.join(", ")}`;
  return `Signed in${credential === "session" ? "" : " by a token"}${until}${narrowed}.`;
}

function Person({ caller }: { caller: CallerView }) {
  const roles = Object.entries(caller.projects);
  return (
    <section className={classes.panel} aria-label="Person">
      <div className={classes.head}>
        <h2>{caller.name}</h2>
        {caller.title === "" ? null : <span>{caller.title}</span>}
        <span className={classes.fact}>
          {caller.role === null ? "no role in the service" : `${caller.role} of the service`}
        </span>
      </div>
      {roles.length === 0 ? (
        <p className={classes.note}>
          {caller.role === null
            ? "You have no role in a project yet."
            : "Your role in the service holds in all projects."}
        </p>
      ) : (
        <table className={classes.table}>
          <caption className={classes.caption}>Your projects</caption>
          <thead>
            <tr>
              <th scope="col">Project</th>
              <th scope="col">Role</th>
            </tr>
          </thead>
          <tbody>
            {roles.map(([project, role]) => (
              <tr key={project}>
                <th scope="row">
                  <Link to="/jobs" search={{ project }} title={`Jobs of project ${project}`}>
                    {project}
                  </Link>
                </th>
                <td>{role}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function Credentials({ caller }: { caller: CallerView }) {
  return (
    <>
      {caller.has_password ? <PasswordForm /> : null}
      {caller.credential === "none" ? null : <OwnSessions />}
      <section aria-label="Tokens">
        <h2 className={classes.subtitle}>Tokens</h2>
        <OwnTokens />
        <p>
          <Link to="/tokens">Make a token</Link>
        </p>
      </section>
    </>
  );
}
