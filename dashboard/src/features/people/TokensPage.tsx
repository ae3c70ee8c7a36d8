/** The own tokens: make one, whose secret is shown once, and revoke. */
import { Button, Checkbox, NumberInput, TextInput } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { createToken, listTokens, revokeToken, type Scope, type TokenView } from "@/api/generated";
import { usePolled } from "@/api/polling";
import { Clock, useClock } from "@/components/Clock";
import { CopyButton } from "@/components/CopyButton";
import { Failed } from "@/components/Failed";
import { SkeletonRows } from "@/components/SkeletonRows";
import { usePageTitle } from "@/components/usePageTitle";
import { ago, moment } from "@/lib/format";
import classes from "./PeoplePages.module.css";
import { useChange } from "./useChange";

const SCOPES: readonly Scope[] = ["jobs:read", "jobs:write", "nodes:write", "projects:write", "service:admin"];
const DAYS_MAX = 366;

export function TokensPage() {
  usePageTitle("Tokens");
  const { data, error, refetch } = usePolled({
    key: ["people", "tokens"],
    fetch: (signal) => listTokens({ signal, throwOnError: true }),
    seconds: 30,
  });
  return (
    <>
      <h1 className={classes.title}>Tokens</h1>
      <p className={classes.summary}>A token has the rights that you have now, of those only the ones of its scopes.</p>
      {data === undefined && error !== null ? <Failed error={error} retry={() => void refetch()} /> : null}
      {data === undefined && error === null ? <SkeletonRows label="The tokens are loading" /> : null}
      {data === undefined ? null : (
        <Clock of={["people", "tokens"]}>
          <TokenTable tokens={data.items} />
        </Clock>
      )}
      <NewToken />
    </>
  );
}

function TokenTable({ tokens }: { tokens: readonly TokenView[] }) {
  return (
    <div className={classes.panel}>
      <table className={classes.table}>
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
      <td>{token.prefix}…</td>
      <td>{token.scopes?.join(", ") ?? "all your rights"}</td>
      <td>{token.projects?.join(", ") ?? "all your projects"}</td>
      <td>{token.expires_at === null ? "never" : moment(token.expires_at)}</td>
      <td>{token.used_at === null ? "never" : ago(token.used_at, now)}</td>
      <td>
        {token.revoked_at === null ? (
          <Button
            size="compact-xs"
            variant="default"
            loading={revoke.isPending}
            onClick={() => revoke.mutate(undefined)}
          >
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

function NewToken() {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<Scope[]>(["jobs:read"]);
  const [days, setDays] = useState<number | string>(90);
  const [secret, setSecret] = useState<string | null>(null);
  const create = useChange(
    () => createToken({ body: { name, scopes, days: Number(days) }, throwOnError: true }),
    ({ data }) => {
      setSecret(data.secret);
      setName("");
    },
  );
  function submit(event: FormEvent) {
    event.preventDefault();
    create.mutate(undefined);
  }
  return (
    <section className={classes.panel} aria-label="New token">
      <div className={classes.head}>
        <h2>New token</h2>
      </div>
      <form className={classes.form} onSubmit={submit}>
        <TextInput label="Name" value={name} required onChange={(event) => setName(event.currentTarget.value)} />
        <Checkbox.Group label="Scopes" value={scopes} onChange={(found) => setScopes(found as Scope[])}>
          <div className={classes.scopes}>
            {SCOPES.map((scope) => (
              <Checkbox key={scope} value={scope} label={scope} />
            ))}
          </div>
        </Checkbox.Group>
        <NumberInput label="Days until it expires" value={days} min={1} max={DAYS_MAX} onChange={setDays} />
        <Button type="submit" loading={create.isPending} disabled={name === "" || scopes.length === 0}>
          Make the token
        </Button>
      </form>
      {create.error === null ? null : <Failed error={create.error} />}
      {secret === null ? null : (
        <div className={classes.note} role="status">
          <strong>This secret is shown only now. Store it.</strong>
          <code className={classes.secret}>{secret}</code>
          <CopyButton text={secret} what="secret" label="Copy" />
        </div>
      )}
    </section>
  );
}
