/** Signing out of this browser. */
import { useQueryClient } from "@tanstack/react-query";
import { signOut } from "@/api/generated";
import { forgetToken, useToken } from "@/api/token";

/** Prefix of the token of a session, which ends with the sign-out; other tokens stay valid. */
const SESSION = "lst_";

/** Null if this browser has no token to forget. */
export function useSignOut(): (() => void) | null {
  const token = useToken();
  const queries = useQueryClient();
  if (token === null) return null;
  return () => {
    if (token.startsWith(SESSION))
      void signOut({ headers: { Authorization: `Bearer ${token}` } }).catch(() => undefined);
    forgetToken();
    queries.clear();
  };
}
