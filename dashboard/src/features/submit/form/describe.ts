/** What a field of the spec means, in the words of the API's own description. */
import { valueAt } from "../text/read";
import { argumentsOf } from "./tasks";

export interface Schema {
  $ref?: string;
  description?: string;
  title?: string;
  properties?: Record<string, Schema>;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  additionalProperties?: Schema | boolean;
}

export type Schemas = Record<string, Schema>;

/** The description of the field at `path`; empty where there is none. `value` is the spec, which says whose arguments are meant. */
export function describe(schemas: Schemas, path: readonly string[], value: unknown): string {
  if (path[0] === "train" && path[1] === "task_args" && path[2] !== undefined) {
    return argumentsOf(valueAt(value, ["train", "task"])).find(({ name }) => name === path[2])?.means ?? "";
  }
  let here: Schema[] = [schemas.JobSpec ?? {}];
  let said = "";
  for (const part of path) {
    const inner = here
      .flatMap((schema) => members(schemas, schema))
      .flatMap(({ properties }) => properties?.[part] ?? []);
    said =
      inner.map((schema) => schema.description ?? fromMembers(schemas, schema)).find((words) => words !== "") ?? "";
    here = inner;
  }
  return said;
}

function fromMembers(schemas: Schemas, schema: Schema): string {
  return (
    members(schemas, schema)
      .map(({ description }) => description ?? "")
      .find((words) => words !== "") ?? ""
  );
}

/** The schemas that a value may be of: what references name, and the choices of a union. */
function members(schemas: Schemas, schema: Schema): Schema[] {
  const choices = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  const named = schema.$ref === undefined ? undefined : schemas[schema.$ref.replace(/^.*\//, "")];
  if (named !== undefined) return members(schemas, named);
  return choices.length === 0 ? [schema] : [schema, ...choices.flatMap((choice) => members(schemas, choice))];
}
