/** A time in words, with the moment on hover. */
import { moment } from "@/lib/format";
import type { When as Words } from "./words";

export function When({ when }: { when: Words }) {
  if (when.at === null) return <>{when.words}</>;
  return (
    <time dateTime={when.at} title={moment(when.at)}>
      {when.words}
    </time>
  );
}
