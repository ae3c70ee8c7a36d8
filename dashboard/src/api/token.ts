/** The user's token: in this tab only, or stored by the browser on request. */
import { useSyncExternalStore } from "react";

const KEY = "lockstep.token";
/** Why the service refused the last token; null if it did not. */
let refusal: string | null = null;
const listeners = new Set<() => void>();

export function readToken(): string | null {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
}

export function keepToken(token: string, remember: boolean): void {
  (remember ? localStorage : sessionStorage).setItem(KEY, token);
  refusal = null;
  tell();
}

/** Forget a token that was refused. A late answer to another token changes nothing. */
export function refuseToken(token: string, why: string): void {
  if (token !== readToken()) return;
  refusal = why;
  drop();
}

export function readRefusal(): string | null {
  return refusal;
}

/** Sign out: what this tab keeps for the person, such as drafts, is not for the next one. */
export function forgetToken(): void {
  refusal = null;
  for (const key of Object.keys(sessionStorage)) if (key.startsWith("lockstep.")) sessionStorage.removeItem(key);
  drop();
}

function drop(): void {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  tell();
}

/** A link may carry the token behind `#token=`: that part of an address is never sent to a server. */
export function takeTokenFromAddress(): void {
  const token = new URLSearchParams(window.location.hash.slice(1)).get("token");
  if (token === null) return;
  keepToken(token, false);
  window.history.replaceState(null, "", window.location.pathname + window.location.search);
}

export function useToken(): string | null {
  return useSyncExternalStore(subscribe, readToken);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(): void {
  for (const listener of listeners) listener();
}
