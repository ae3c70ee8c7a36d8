/** The own tokens: make one, whose secret is shown once, and revoke. */
import { Button, Checkbox, NumberInput, TextInput } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { createToken, type Scope } from "@/api/generated";
import { CopyButton } from "@/components/CopyButton";
import { Failed } from "@/components/Failed";
import { usePageTitle } from "@/components/usePageTitle";
import { OwnTokens } from "./OwnTokens";
import classes from "./PeoplePages.module.css";
import { useChange } from "./useChange";

const SCOPES: readonly Scope[] = ["jobs:read", "jobs:write", "nodes:write", "projects:write", "service:admin"];
const DAYS_MAX = 366;

export function TokensPage() {
  usePageTitle("Tokens");
  return (
    <>
      <h1 className={classes.title}>Tokens</h1>
      <p className={classes.summary}>A token has the rights that you have now, of those only the ones of its scopes.</p>
      <OwnTokens />
      <NewToken />
    </>
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
