/**
 * The one way to the service: the generated client with the person's token, and errors that people can read.
 *
 * Answers are cached by the browser itself: the API sends `ETag` and `Cache-Control: no-cache`, so a poll of something
 * that did not change travels as a 304 without a body.
 */
import type { Problem } from "./generated";
import { client } from "./generated/client.gen";
import { forgetToken, readToken } from "./token";

/** What the service refused, in its own words, or that it was not reached at all (`status` 0). */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly problem: Partial<Problem>,
  ) {
    super(problem.detail ?? problem.title ?? `The service answered ${status}.`);
  }

  /** Not reached, or not able to answer: asking again may help. */
  get isPassing(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

const unreached: Partial<Problem> = { title: "Not reached", detail: "The service does not answer." };

export function setUpClient(): void {
  client.setConfig({ baseUrl: window.location.origin, throwOnError: true });
  client.interceptors.request.use((request) => {
    const token = readToken();
    if (token) request.headers.set("Authorization", `Bearer ${token}`);
    return request;
  });
  client.interceptors.error.use((error, response) => {
    // A query that nobody waits for any more is abandoned, not unanswered.
    if (response === undefined) return isAbandoned(error) ? error : new Refusal(0, unreached);
    if (response.status === 401) forgetToken();
    return new Refusal(response.status, isProblem(error) ? error : { title: response.statusText });
  });
}

function isAbandoned(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

function isProblem(value: unknown): value is Problem {
  return typeof value === "object" && value !== null && "title" in value;
}
