/** Whether the service lets this browser in: asked once per token, of the service itself. */
import { useCaller } from "@/api/caller";
import { Failure } from "@/api/client";

/** `unknown` while the answer is awaited, or the service is not reached: the page is then shown as it is. */
export function useSignedIn(): "yes" | "no" | "unknown" {
  const { data, error } = useCaller();
  if (error instanceof Failure && error.status === 401) return "no";
  return data === undefined ? "unknown" : "yes";
}
