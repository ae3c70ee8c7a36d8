/** Frame of every page: navigation, freshness, connection, shortcuts. */
import { Link, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useState } from "react";
import { Button, looking } from "@/components/Button";
import { useSignedIn } from "@/features/session/useSignedIn";
import { AddressNote } from "./AddressNote";
import { ConnectionBanner } from "./ConnectionBanner";
import { Freshness } from "./Freshness";
import { GuardedOutlet } from "./GuardedOutlet";
import { useGlobalKeys } from "./keys";
import { PersonMenu } from "./PersonMenu";
import { ProjectFilter } from "./ProjectFilter";
import { usePages } from "./pages";
import classes from "./Shell.module.css";
import { useBarHeight } from "./useBarHeight";

// Most tabs show neither.
const SignIn = lazy(async () => ({ default: (await import("@/features/session/SignIn")).SignIn }));
const KeyboardHelp = lazy(async () => ({ default: (await import("./KeyboardHelp")).KeyboardHelp }));

export function Shell() {
  const [helpIsOpen, setHelpIsOpen] = useState(false);
  useGlobalKeys({ help: () => setHelpIsOpen((open) => !open) });
  const bar = useBarHeight();
  const signedIn = useSignedIn();
  const { project } = useSearch({ strict: false });
  const pages = usePages();
  const listed = pages.filter(({ place }) => place === "head");
  const buttons = pages.filter(({ place }) => place === "button");
  return (
    <div className={classes.shell}>
      <a href="#content" className={classes.skip}>
        Skip to the content
      </a>
      <header ref={bar} className={classes.header}>
        <Link to="/" className={classes.mark} aria-label="Lockstep: home">
          <img src="/mark.svg" alt="" width={20} height={20} />
          <span>Lockstep</span>
        </Link>
        {signedIn === "no" ? null : (
          <>
            <nav aria-label="Pages" className={classes.nav}>
              {listed.map((page) => (
                <Link
                  key={page.to}
                  to={page.to}
                  search={page.isByProject && project !== undefined ? { project } : {}}
                  activeProps={{ "aria-current": "page" }}
                  activeOptions={{ includeSearch: false, exact: page.to === "/" }}
                >
                  {page.name}
                </Link>
              ))}
            </nav>
            <ProjectFilter />
            <div className={classes.side}>
              <Freshness />
              {buttons.map(({ to, name }) => (
                <Link key={to} to={to} {...looking({ variant: "filled", size: "sm" })}>
                  {name}
                </Link>
              ))}
              <Button
                variant="subtle"
                size="sm"
                className={classes.icon}
                aria-label="Keyboard shortcuts"
                title="Keyboard shortcuts (?)"
                onClick={() => setHelpIsOpen(true)}
              >
                ?
              </Button>
              <PersonMenu />
            </div>
          </>
        )}
      </header>
      <ConnectionBanner />
      <main id="content" className={classes.main} tabIndex={-1}>
        {signedIn === "no" ? (
          <Suspense fallback={null}>
            <SignIn />
          </Suspense>
        ) : (
          <>
            <AddressNote />
            <GuardedOutlet />
          </>
        )}
      </main>
      <Suspense fallback={null}>
        {helpIsOpen ? <KeyboardHelp opened onClose={() => setHelpIsOpen(false)} /> : null}
      </Suspense>
    </div>
  );
}
