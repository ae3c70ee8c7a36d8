/** This browser's own settings: colours, pace, signing out. */
import { Button, SegmentedControl, useMantineColorScheme } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { getSession, signOut } from "@/api/generated";
import { type PACES, setPace, usePace } from "@/api/pace";
import { usePolled } from "@/api/polling";
import { forgetToken, useToken } from "@/api/token";
import { usePageTitle } from "@/components/usePageTitle";
import classes from "./SettingsPage.module.css";

/** Prefix of the token of a session, which ends with the sign-out; other tokens stay valid. */
const SESSION = "lst_";

export function SettingsPage() {
  usePageTitle("Settings");
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const pace = usePace();
  const token = useToken();
  const queries = useQueryClient();
  const { data: caller } = usePolled({
    key: ["caller"],
    fetch: (signal) => getSession({ signal, throwOnError: true }),
    seconds: 60,
  });
  return (
    <div className={classes.settings}>
      <h1>Settings</h1>
      <section>
        <h2 id="colours">Colours</h2>
        <SegmentedControl
          aria-labelledby="colours"
          value={colorScheme}
          onChange={(value) => setColorScheme(value as typeof colorScheme)}
          data={[
            { value: "auto", label: "As the system" },
            { value: "light", label: "Light" },
            { value: "dark", label: "Dark" },
          ]}
        />
      </section>
      <section>
        <h2 id="pace">How often pages are brought up to date</h2>
        <SegmentedControl
          aria-labelledby="pace"
          value={pace.name}
          onChange={(value) => setPace(value as keyof typeof PACES)}
          data={[
            { value: "live", label: "Live (2–5 s)" },
            { value: "calm", label: "Calm (12–30 s)" },
            { value: "paused", label: "Paused" },
          ]}
        />
      </section>
      <section>
        <h2>Team</h2>
        <p>
          <Link to="/projects">Projects</Link>, <Link to="/people">people</Link>, <Link to="/tokens">your tokens</Link>{" "}
          and the <Link to="/audit">audit</Link>
        </p>
      </section>
      <section>
        <h2>Session</h2>
        {caller === undefined ? null : (
          <p>
            Signed in as <strong>{caller.name}</strong>
            {caller.role === null ? "" : `, ${caller.role} of the service`}.
          </p>
        )}
        {token === null ? (
          <p>This service asks for no token.</p>
        ) : (
          <Button
            variant="default"
            onClick={() => {
              if (token.startsWith(SESSION))
                void signOut({ headers: { Authorization: `Bearer ${token}` } }).catch(() => undefined);
              forgetToken();
              queries.clear();
            }}
          >
            Sign out
          </Button>
        )}
      </section>
    </div>
  );
}
