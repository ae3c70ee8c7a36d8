/** The door: a name and a password, a token, or an invitation, tried at once against the service. */
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { Failure, refusalOf } from "@/api/client";
import { acceptInvitation, listJobs, signIn } from "@/api/generated";
import { keepToken, readRefusal } from "@/api/token";
import { Button } from "@/components/Button";
import { Checkbox, Code, PasswordInput, SegmentedControl, TextInput } from "@/components/mantine";
import { usePageTitle } from "@/components/usePageTitle";
import classes from "./SignIn.module.css";

type Way = "password" | "token" | "invitation";

interface Given {
  name: string;
  secret: string;
  password: string;
}

/** A refusal, under the field that it is about. */
interface Refused {
  at: "secret" | "password";
  why: string;
}

const KEY = "lockstep.way";

/** The way of the last sign-in in this browser. Before the first: the token is at hand where the service runs. */
function firstWay(): Way {
  const isOwnMachine = ["localhost", "127.0.0.1", "[::1]"].includes(window.location.hostname);
  return (localStorage.getItem(KEY) ?? (isOwnMachine ? "token" : "password")) === "token" ? "token" : "password";
}

function refusedField(way: Way, error: Error): Refused {
  const isUnknown = error instanceof Failure && error.status === 401;
  if (way === "token") return { at: "secret", why: isUnknown ? refusalOf(error.problem) : error.message };
  const [wrong] = error instanceof Failure ? (error.problem.errors ?? []) : [];
  const isOfCode = way === "invitation" && (isUnknown || wrong?.pointer === "/code");
  return { at: isOfCode ? "secret" : "password", why: wrong?.message ?? error.message };
}

/** Return the token that the service accepts from now on. */
async function tokenFor(way: Way, { name, secret, password }: Given): Promise<string> {
  if (way === "password") {
    const { data } = await signIn({ body: { name: name.trim(), password }, throwOnError: true });
    return data.token;
  }
  if (way === "invitation") {
    const { data } = await acceptInvitation({ body: { code: secret.trim(), password }, throwOnError: true });
    return data.token;
  }
  const token = secret.trim();
  await listJobs({ query: { limit: 1 }, headers: { Authorization: `Bearer ${token}` } });
  return token;
}

export function SignIn() {
  usePageTitle("Sign in");
  const queries = useQueryClient();
  const [way, setWay] = useState<Way>(firstWay);
  const [name, setName] = useState("");
  const [secret, setSecret] = useState("");
  const [password, setPassword] = useState("");
  const [remember, setRemember] = useState(false);
  const [refused, setRefused] = useState<Refused | null>(() => {
    const why = readRefusal();
    return why === null ? null : { at: way === "password" ? "password" : "secret", why };
  });
  const [asking, setAsking] = useState(false);
  const given = [way === "password" ? name : secret, way === "token" ? "given" : password];

  async function enter(event: FormEvent) {
    event.preventDefault();
    setAsking(true);
    setRefused(null);
    try {
      const token = await tokenFor(way, { name, secret, password });
      queries.clear();
      localStorage.setItem(KEY, way);
      keepToken(token, remember);
    } catch (error) {
      setRefused(refusedField(way, error as Error));
      setAsking(false);
    }
  }

  return (
    <form className={classes.door} onSubmit={enter}>
      <h1>Sign in</h1>
      <SegmentedControl
        aria-label="How to sign in"
        value={way}
        onChange={(chosen) => {
          setWay(chosen as Way);
          setRefused(null);
        }}
        data={[
          { value: "token", label: "By token" },
          { value: "password", label: "By password" },
          { value: "invitation", label: "By invitation" },
        ]}
      />
      {way === "password" ? (
        <TextInput
          label="Name"
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
          autoComplete="username"
          required
        />
      ) : (
        <PasswordInput
          label={way === "token" ? "Token" : "Invitation code"}
          description={
            way === "token"
              ? "Of a service started with lockstep up: the file token in LOCKSTEP_HOME, or lockstep open."
              : "An admin of the service gives it to you. It is valid once."
          }
          value={secret}
          onChange={(event) => setSecret(event.currentTarget.value)}
          error={refused?.at === "secret" ? refused.why : null}
          autoComplete={way === "token" ? "current-password" : "one-time-code"}
          required
          data-autofocus
        />
      )}
      {way === "token" ? null : (
        <PasswordInput
          label={way === "password" ? "Password" : "New password"}
          description={way === "password" ? undefined : "12 to 1,024 characters."}
          value={password}
          onChange={(event) => setPassword(event.currentTarget.value)}
          error={refused?.at === "password" ? refused.why : null}
          autoComplete={way === "password" ? "current-password" : "new-password"}
          required
        />
      )}
      <Checkbox
        label="Remember on this computer"
        checked={remember}
        onChange={(event) => setRemember(event.currentTarget.checked)}
      />
      <Button variant="filled" type="submit" loading={asking} disabled={given.some((text) => text.trim() === "")}>
        Sign in
      </Button>
      {way === "token" ? (
        <p className={classes.hint}>
          Or run <Code>lockstep open</Code> where the command line already knows the service.
        </p>
      ) : null}
    </form>
  );
}
