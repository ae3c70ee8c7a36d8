/**
 * What the field that has the focus means, at the foot of the form: there is always room for it, so nothing moves. It
 * stays in sight only while a field has the focus, because it then lies over other fields.
 */
import { useQuery } from "@tanstack/react-query";
import { client } from "@/api/generated/client.gen";
import { dotted, pathOf } from "../text/pointer";
import { describe, type Schemas } from "./describe";
import classes from "./FieldHelp.module.css";

export function FieldHelp({ pointer, value }: { pointer: string | null; value: unknown }) {
  // The description is large, and asked for only once somebody is in a field.
  const { data: schemas } = useQuery({
    queryKey: ["openapi"],
    queryFn: async ({ signal }) => {
      const { data } = await client.get<{ 200: { components: { schemas: Schemas } } }, unknown, true>({
        url: "/openapi.json",
        signal,
        throwOnError: true,
      });
      return data.components.schemas;
    },
    enabled: pointer !== null,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const words = pointer === null || schemas === undefined ? "" : describe(schemas, pathOf(pointer), value);
  return (
    <div className={classes.help} data-asked={pointer !== null} aria-live="polite">
      {pointer === null ? (
        <p>Every other field of a spec is reached in the YAML, which is what is sent.</p>
      ) : (
        <>
          <code>{dotted(pointer)}</code>
          <p>{inCode(words)}</p>
        </>
      )}
    </div>
  );
}

/** ``code`` in the service's words, as code. */
function inCode(words: string) {
  return words
    .split("``")
    .map((part, index) => (index % 2 === 1 ? <code key={`${index.toString()}${part}`}>{part}</code> : part));
}
