/** The door: a token, tried at once against the service. */
import { Button, Checkbox, Code, PasswordInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { Failure, refusalOf } from "@/api/client";
import { listJobs } from "@/api/generated";
import { keepToken, readRefusal } from "@/api/token";
import { usePageTitle } from "@/components/usePageTitle";
import classes from "./SignIn.module.css";

export function SignIn() {
  usePageTitle("Sign in");
  const queries = useQueryClient();
  const [token, setToken] = useState("");
  const [remember, setRemember] = useState(false);
  const [refused, setRefused] = useState(readRefusal);
  const [asking, setAsking] = useState(false);

  async function enter(event: FormEvent) {
    event.preventDefault();
    const tried = token.trim();
    setAsking(true);
    setRefused(null);
    try {
      await listJobs({ query: { limit: 1 }, headers: { Authorization: `Bearer ${tried}` } });
      queries.clear();
      keepToken(tried, remember);
    } catch (error) {
      const isRefused = error instanceof Failure && error.status === 401;
      setRefused(isRefused ? refusalOf(error.problem) : (error as Error).message);
      setAsking(false);
    }
  }

  return (
    <form className={classes.door} onSubmit={enter}>
      <h1>Sign in</h1>
      <PasswordInput
        label="Token"
        description="Of a service started with lockstep up: the file token in LOCKSTEP_HOME, or lockstep open."
        value={token}
        onChange={(event) => setToken(event.currentTarget.value)}
        error={refused}
        autoComplete="current-password"
        required
        data-autofocus
      />
      <Checkbox
        label="Remember on this computer"
        checked={remember}
        onChange={(event) => setRemember(event.currentTarget.checked)}
      />
      <Button type="submit" loading={asking} disabled={token.trim() === ""}>
        Sign in
      </Button>
      <p className={classes.hint}>
        Or run <Code>lockstep open</Code> where the command line already knows the service.
      </p>
    </form>
  );
}
