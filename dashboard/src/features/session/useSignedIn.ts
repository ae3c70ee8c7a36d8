/** Whether the service lets this browser in: asked once per token, of the service itself. */
import { useQuery } from "@tanstack/react-query";
import { Failure } from "@/api/client";
import { listJobs } from "@/api/generated";
import { useToken } from "@/api/token";

/** `unknown` while the answer is awaited, or the service is not reached: the page is then shown as it is. */
export function useSignedIn(): "yes" | "no" | "unknown" {
  const token = useToken();
  const { isSuccess, error } = useQuery({
    queryKey: ["session", token],
    queryFn: async ({ signal }) => {
      await listJobs({ query: { limit: 1 }, signal });
      return true;
    },
    staleTime: Number.POSITIVE_INFINITY,
    retry: (_, failure) => failure instanceof Failure && failure.mayPass,
    retryDelay: 2_000,
  });
  if (error instanceof Failure && error.status === 401) return "no";
  return isSuccess ? "yes" : "unknown";
}
