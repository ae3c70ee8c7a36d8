/** The caller of this browser's requests: name, roles and rights, as the service knows them. */
import { type CallerView, getSession } from "./generated";
import { usePolled } from "./polling";
import { useToken } from "./token";

/** Between questions until there is an answer. Afterwards it is read again when the tab is. */
const SECONDS = 2;

export function useCaller() {
  const token = useToken();
  return usePolled<CallerView>({
    key: ["people", "caller", token],
    fetch: (signal) => getSession({ signal, throwOnError: true }),
    seconds: SECONDS,
    isFinal: () => true,
  });
}
