/** Table of the own tokens, with their revocation. */
import { listTokens, revokeToken, type TokenView } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { Button } from "@/components/Button";
import { Clock, useClock } from "@/components/Clock";
import { Failed } from "@/components/Failed";
import { SkeletonRows } from "@/components/SkeletonRows";
import { ago, moment } from "@/lib/format";
import classes from "./PeoplePages.module.css";
import { useChange } from "./useChange";

export function OwnTokens() {
  const { data, error, refetch } = usePolled({
    key: ["people", "tokens"],
    fetch: (signal) => listTokens({ signal, throwOnError: true }),
    seconds: 30,
  });
  if (data === undefined && error !== null) return <Failed error={error} retry={() => void refetch()} />;
  if (data === undefined) return <SkeletonRows label="The tokens are loading" />;
  if (data.items.length === 0) return <p className={classes.summary}>You have no tokens.</p>;
  return (
    <Clock of={["people", "tokens"]}>
      <TokenTable tokens={data.items} />
    </Clock>
  );
}

function TokenTable({ tokens }: { tokens: readonly TokenView[] }) {
  return (
    <div className={classes.panel}>
      <table className={classes.cards}>
        <caption className={classes.caption}>Your tokens, newest first</caption>
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Secret</th>
            <th scope="col">Scopes</th>
            <th scope="col">Projects</th>
            <th scope="col">Expires</th>
            <th scope="col">Last used</th>
            <th scope="col">
              <span className={classes.caption}>Revocation</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {tokens.map((token) => (
            <Row key={token.id} token={token} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ token }: { token: TokenView }) {
  const { now } = useClock();
  const revoke = useChange(() => revokeToken({ path: { token_id: token.id }, throwOnError: true }));
  return (
    <tr>
      <th scope="row">{token.name}</th>
      <td data-name="Secret">{token.prefix}…</td>
      <td data-name="Scopes">{token.scopes?.join(", ") ?? "all your rights"}</td>
      <td data-name="Projects">{token.projects?.join(", ") ?? "all your projects"}</td>
      <td data-name="Expires">{token.expires_at === null ? "never" : moment(token.expires_at)}</td>
      <td data-name="Last used">{token.used_at === null ? "never" : ago(token.used_at, now)}</td>
      <td>
        {token.revoked_at === null ? (
          <Button size="xs" loading={revoke.isPending} onClick={() => revoke.mutate(undefined)}>
            Revoke {token.name}
          </Button>
        ) : (
          "revoked"
        )}
        {revoke.error === null ? null : <Failed error={revoke.error} />}
      </td>
    </tr>
  );
}
