/** The spec in YAML: as submitted, whole with what was not submitted set apart, or what differs from another job's. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { lazy, Suspense } from "react";
import type { JobView } from "@/api/generated";
import { Button } from "@/components/Button";
import { CopyButton } from "@/components/CopyButton";
import { Failed } from "@/components/Failed";
import { Panel } from "@/components/Panel";
import { saveFile } from "@/lib/save-file";
import { useWholeSpec } from "./job-queries";
import { OtherJob } from "./OtherJob";
import classes from "./SpecPanel.module.css";
import type { SpecLine } from "./spec-lines";

// Only this part of the page writes YAML.
const SpecDiff = lazy(async () => ({ default: (await import("./SpecDiff")).SpecDiff }));

interface Numbered extends SpecLine {
  number: number;
}

interface Props {
  job: JobView;
  reference: string;
  isWhole: boolean;
  /** Name or id of a job that it is compared with. */
  against: string | undefined;
}

export function SpecPanel({ job, reference, isWhole, against }: Props) {
  const { data: whole, error, refetch } = useWholeSpec(job, isWhole);
  const { data: lines } = useQuery({
    queryKey: ["job", job.id, "yaml", isWhole],
    queryFn: async (): Promise<Numbered[]> => {
      // As above.
      const { specLines } = await import("./spec-lines");
      const found = specLines(isWhole && whole !== undefined ? whole : job.spec, job.spec);
      return found.map((line, place) => ({ ...line, number: place + 1 }));
    },
    enabled: !isWhole || whole !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const yaml = lines?.map((line) => `${line.text}\n`).join("");
  return (
    <Panel aria-labelledby="spec-title">
      <div className={classes.head}>
        <h2 id="spec-title">Spec</h2>
        <nav aria-label="Which spec" className={classes.which}>
          {[false, true].map((one) => (
            <Link
              key={String(one)}
              to="/jobs/$job"
              params={{ job: reference }}
              search={{
                tab: "configuration",
                ...(one ? { spec: "whole" } : {}),
                ...(against === undefined ? {} : { against }),
              }}
              replace
              resetScroll={false}
              activeOptions={{ exact: true }}
              aria-current={one === isWhole ? "true" : undefined}
            >
              {one ? "With every default" : "As submitted"}
            </Link>
          ))}
        </nav>
        <CopyButton text={yaml ?? ""} what="spec" label="Copy" />
        <Button
          size="sm"
          disabled={yaml === undefined}
          onClick={() =>
            saveFile(
              isWhole ? `${job.name}.whole.yaml` : `${job.name}.yaml`,
              new Blob([yaml ?? ""], { type: "application/yaml" }),
            )
          }
        >
          Download
        </Button>
      </div>
      {isWhole && whole === undefined && error !== null ? <Failed error={error} retry={() => void refetch()} /> : null}
      <OtherJob key={against} job={job} against={against} />
      {against === undefined ? (
        <>
          {isWhole && lines !== undefined ? <Legend lines={lines} /> : null}
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard */}
          <pre className={classes.yaml} data-whole={isWhole} tabIndex={0} data-testid="spec-yaml">
            {isWhole ? lines?.map((line) => <Line key={line.number} line={line} />) : yaml}
          </pre>
        </>
      ) : (
        <Suspense fallback={<div aria-busy="true" />}>
          <SpecDiff job={job} against={against} isWhole={isWhole} />
        </Suspense>
      )}
    </Panel>
  );
}

function Legend({ lines }: { lines: readonly SpecLine[] }) {
  const defaults = lines.filter(({ origin }) => origin === "default").length;
  const settled = lines.some(({ origin }) => origin === "settled");
  return (
    <p className={classes.legend}>
      {defaults === 0 ? (
        "All of it was submitted."
      ) : (
        <>
          Lines marked <em>default</em> were not submitted.
        </>
      )}
      {settled ? (
        <>
          {" "}
          Those marked <em>settled</em> were looked up at the submit.
        </>
      ) : null}
    </p>
  );
}

/** The marks are beside the text, not in it: what one selects is YAML. */
function Line({ line: { text, origin, asked } }: { line: SpecLine }) {
  return (
    <span className={classes.line} data-origin={origin}>
      <span className={classes.mark}>{origin === "submitted" ? "" : origin}</span>
      <span className={classes.text}>{`${text}\n`}</span>
      {asked === undefined ? null : <span className={classes.asked}>submitted: {asked}</span>}
    </span>
  );
}
