/** Wait reason of a job, in the service's text; job ids in it become links with names. */
import { Link } from "@tanstack/react-router";
import { waitParts } from "@/lib/waiting";

export function WaitReason({ reason, nameOf }: { reason: string; nameOf: (id: string) => string | undefined }) {
  return (
    <>
      {waitParts(reason, nameOf).map((part) =>
        typeof part === "string" ? (
          part
        ) : (
          <Link key={part.job} to="/jobs/$job" params={{ job: part.job }}>
            {part.name}
          </Link>
        ),
      )}
    </>
  );
}
