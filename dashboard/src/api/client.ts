/**
 * The one way to the service: the generated client with the user's token, and one type for everything that can go wrong.
 *
 * Answers are cached by the browser itself: the API sends `ETag` and `Cache-Control: no-cache`, so a poll of something
 * that did not change travels as a 304 without a body.
 */
import { type Problem, signInWithCode } from "./generated";
import { client } from "./generated/client.gen";
import { readToken, refuseToken } from "./token";

/**
 * `refused`: a complete answer with a refusal; a repeated request is refused again.
 * `gone`: a refusal because the resource does not exist.
 * `unreached`: no answer, or an answer of a gateway or of a busy service.
 * `broken`: an answer that is cut, unexpected, or reports a fault of the service.
 */
export type FailureKind = "refused" | "gone" | "unreached" | "broken";

export class Failure extends Error {
  private constructor(
    readonly kind: FailureKind,
    /** 0 where there was no answer at all. */
    readonly status: number,
    readonly problem: Partial<Problem>,
  ) {
    super(problem.detail ?? problem.title ?? `Lockstep answered with status ${status}.`);
  }

  static unreached(problem: Partial<Problem> = SILENT, status = 0): Failure {
    return new Failure("unreached", status, problem);
  }

  static broken(status: number, problem: Partial<Problem> = CUT): Failure {
    return new Failure("broken", status, problem);
  }

  /** A complete answer whose status is not a success. */
  static answered(status: number, problem: Partial<Problem>): Failure {
    return new Failure(kindOf(status), status, problem);
  }

  /** Only a refusal is final. */
  get mayPass(): boolean {
    return this.kind === "unreached" || this.kind === "broken";
  }
}

const SILENT: Partial<Problem> = { title: "No connection", detail: "Lockstep does not answer." };
const CUT: Partial<Problem> = {
  title: "Incomplete answer",
  detail: "The answer of Lockstep was cut off or could not be read.",
};
/** The request was not processed: timeouts, too early, too many requests, and gateways in front of the service. */
const NOT_PROCESSED: readonly number[] = [408, 425, 429, 502, 503, 504];

function kindOf(status: number): FailureKind {
  if (status === 404 || status === 410) return "gone";
  if (NOT_PROCESSED.includes(status)) return "unreached";
  return status >= 500 ? "broken" : "refused";
}

/** A GET without a single byte for so long is given up; a slow answer that still arrives is not. */
export const SILENCE_SECONDS = 20;

/** Start a session with a code of `lockstep open`; return its token. A token of this browser is not sent. */
export async function tokenForCode(code: string): Promise<string> {
  const { data } = await signInWithCode({
    body: { code },
    headers: { Authorization: "none" },
    signal: AbortSignal.timeout(SILENCE_SECONDS * 1_000),
    throwOnError: true,
  });
  return data.token;
}

export function setUpClient(): void {
  client.setConfig({ baseUrl: window.location.origin, throwOnError: true, fetch: fetchUnlessSilent });
  client.interceptors.request.use((request) => {
    const token = readToken();
    if (token && !request.headers.has("Authorization")) request.headers.set("Authorization", `Bearer ${token}`);
    return request;
  });
  client.interceptors.response.use((response) => {
    // A page of a proxy, sent as a success, is no answer of the API.
    if (response.ok && response.headers.get("Content-Type")?.startsWith("text/html"))
      throw Failure.broken(response.status);
    return response;
  });
  client.interceptors.error.use((error, response, request) => {
    if (error instanceof Failure) return error;
    // A query that was given up by the page is abandoned, not unanswered.
    if (isAbandoned(error)) return error;
    if (response === undefined) return Failure.unreached();
    if (response.status === 401) refuseToken(tokenOf(request), refusalOf(error));
    if (response.ok) return Failure.broken(response.status);
    if (isProblem(error)) return Failure.answered(response.status, error);
    // A refusal without its body has only its status: a 4xx is enough to stop.
    return error instanceof TypeError ? Failure.broken(response.status) : Failure.answered(response.status, {});
  });
}

/** `fetch` whose GETs end with an error after `SILENCE_SECONDS` without data. */
export async function fetchUnlessSilent(given: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  const request = new Request(given, init);
  if (request.method !== "GET") return fetch(request);
  const silence = new AbortController();
  const wait = () =>
    setTimeout(() => silence.abort(new DOMException("nothing arrived", "TimeoutError")), SILENCE_SECONDS * 1_000);
  let timer = wait();
  try {
    const response = await fetch(request, { signal: AbortSignal.any([request.signal, silence.signal]) });
    if (response.body === null) {
      clearTimeout(timer);
      return response;
    }
    const watched = response.body.pipeThrough(
      new TransformStream<Uint8Array, Uint8Array>({
        transform(chunk, out) {
          clearTimeout(timer);
          timer = wait();
          out.enqueue(chunk);
        },
        flush: () => clearTimeout(timer),
      }),
    );
    return new Response(watched, response);
  } catch (error) {
    clearTimeout(timer);
    throw error;
  }
}

function tokenOf(request: Request | undefined): string {
  return request?.headers.get("Authorization")?.replace(/^Bearer /, "") ?? "";
}

/** "The token was refused: the bearer token was revoked at …", from the answer to a request with it. */
export function refusalOf(problem: unknown): string {
  const detail = isProblem(problem) ? problem.detail : undefined;
  // Behind the semicolon it says that nothing was written.
  return detail == null ? "The token was refused." : `The token was refused: ${detail.split(";")[0]}.`;
}

function isAbandoned(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

function isProblem(value: unknown): value is Problem {
  return typeof value === "object" && value !== null && "title" in value;
}
