/** First steps of one person on one machine: a template, the command, another machine. */
import { Link } from "@tanstack/react-router";
import { looking } from "@/components/Button";
import { CopyButton } from "@/components/CopyButton";
import { Panel } from "@/components/Panel";
import { TEMPLATE_NAMES } from "@/lib/template-names";
import classes from "./HomePage.module.css";

const SUBMIT = "lockstep submit job.yaml";
const AGENT = "lockstep agent";

export function StartJob() {
  return (
    <Panel className={classes.panel} aria-label="Start a job">
      <div className={classes.head}>
        <h2>Start a job</h2>
      </div>
      <div className={classes.start}>
        <ul>
          {TEMPLATE_NAMES.map((template) => (
            <li key={template}>
              <Link to="/submit" search={{ template }} {...looking({ size: "xs" })}>
                {template}
              </Link>
            </li>
          ))}
        </ul>
        <Command text={SUBMIT} />
        <p>Add a machine with GPUs. It needs the address and the store of this service:</p>
        <Command text={AGENT} />
      </div>
    </Panel>
  );
}

function Command({ text }: { text: string }) {
  return (
    <div className={classes.command}>
      <code>{text}</code>
      <CopyButton text={text} what={`command ${text}`} label="Copy" />
    </div>
  );
}
