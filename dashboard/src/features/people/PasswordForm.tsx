/** Change of the own password, with the refusals of the service at their fields. */
import { type FormEvent, useState } from "react";
import { changePassword } from "@/api/generated";
import { Button } from "@/components/Button";
import { Failed } from "@/components/Failed";
import { PasswordInput } from "@/components/mantine";
import { refusedField } from "./fields";
import classes from "./PeoplePages.module.css";
import { useChange } from "./useChange";

export function PasswordForm() {
  const [old, setOld] = useState("");
  const [next, setNext] = useState("");
  const change = useChange(
    () => changePassword({ body: { old, new: next }, throwOnError: true }),
    () => {
      setOld("");
      setNext("");
    },
  );
  const [wrongOld, wrongNew] = [refusedField(change.error, "/old"), refusedField(change.error, "/new")];
  function submit(event: FormEvent) {
    event.preventDefault();
    change.mutate(undefined);
  }
  return (
    <section className={classes.panel} aria-label="Password">
      <div className={classes.head}>
        <h2>Password</h2>
        <span className={classes.fact}>A change ends all other sessions.</span>
      </div>
      <form className={classes.password} onSubmit={submit}>
        <PasswordInput
          label="Present password"
          value={old}
          onChange={(event) => setOld(event.currentTarget.value)}
          error={wrongOld}
          autoComplete="current-password"
          required
        />
        <PasswordInput
          label="New password"
          value={next}
          onChange={(event) => setNext(event.currentTarget.value)}
          error={wrongNew}
          autoComplete="new-password"
          required
        />
        <Button variant="filled" type="submit" loading={change.isPending} disabled={old === "" || next === ""}>
          Change the password
        </Button>
      </form>
      {change.error === null || wrongOld !== null || wrongNew !== null ? null : <Failed error={change.error} />}
      {change.isSuccess ? (
        <p className={classes.note} role="status">
          The password is changed. All other sessions have ended.
        </p>
      ) : null}
    </section>
  );
}
