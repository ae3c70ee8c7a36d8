/** The own tokens: make one, whose secret is shown once, and revoke. */
import { type FormEvent, useState } from "react";
import { createToken, type Right, type Scope } from "@/api/generated";
import { useRights } from "@/api/rights";
import { Button } from "@/components/Button";
import { Failed } from "@/components/Failed";
import { Checkbox, NumberInput, TextInput } from "@/components/mantine";
import { usePageTitle } from "@/components/usePageTitle";
import { OwnTokens } from "./OwnTokens";
import classes from "./PeoplePages.module.css";
import { ShownOnce } from "./ShownOnce";
import { useChange } from "./useChange";

/** Each scope, with a right of it that its owner must have for it to be of use. */
const SCOPES: readonly (readonly [Scope, Right])[] = [
  ["jobs:read", "job.read"],
  ["jobs:write", "job.submit"],
  ["nodes:write", "node.write"],
  ["projects:write", "project.write"],
  ["service:admin", "user.write"],
];
const DAYS_MAX = 366;

export function TokensPage() {
  usePageTitle("Tokens");
  const rights = useRights();
  return (
    <>
      <h1 className={classes.title}>Tokens</h1>
      <p className={classes.summary}>A token has the rights that you have now, of those only the ones of its scopes.</p>
      <OwnTokens />
      {rights.has("token.write") ? <NewToken /> : null}
    </>
  );
}

function NewToken() {
  const rights = useRights();
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
            {SCOPES.filter(([, right]) => rights.has(right)).map(([scope]) => (
              <Checkbox key={scope} value={scope} label={scope} />
            ))}
          </div>
        </Checkbox.Group>
        <NumberInput label="Days until it expires" value={days} min={1} max={DAYS_MAX} onChange={setDays} />
        <Button
          variant="filled"
          type="submit"
          loading={create.isPending}
          disabled={name === "" || days === "" || scopes.length === 0}
        >
          Make the token
        </Button>
      </form>
      {create.error === null ? null : <Failed error={create.error} />}
      {secret === null ? null : (
        <ShownOnce secret={secret} what="secret">
          <strong>This secret is shown only now. Store it.</strong>
        </ShownOnce>
      )}
    </section>
  );
}
