/** The built-in tasks and their arguments, which the API's description does not name; a test holds them to the service's. */
import server from "../server.json";

export interface Argument {
  name: string;
  /** As a spec would say it; null where it is needed. */
  fallback: string | null;
  isNeeded: boolean;
  isText: boolean;
  means: string;
}

interface Schema {
  description?: string;
  default?: unknown;
  type?: string;
  anyOf?: { type?: string }[];
}

export const TASKS = Object.keys(server.tasks);

export function argumentsOf(task: unknown): Argument[] {
  if (typeof task !== "string" || !Object.hasOwn(server.tasks, task)) return [];
  const { properties, required = [] } = server.tasks[task as keyof typeof server.tasks] as {
    properties: Record<string, Schema>;
    required?: string[];
  };
  return Object.entries(properties).map(([name, schema]) => ({
    name,
    fallback: schema.default === undefined || schema.default === null ? null : String(schema.default),
    isNeeded: required.includes(name),
    isText: [schema, ...(schema.anyOf ?? [])].some(({ type }) => type === "string"),
    means: schema.description ?? "",
  }));
}

export function taskMeans(task: unknown): string {
  if (typeof task !== "string" || !Object.hasOwn(server.tasks, task)) return "";
  return server.tasks[task as keyof typeof server.tasks].description.split("\n")[0] ?? "";
}
