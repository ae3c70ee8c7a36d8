/** The user's token: in this tab only, or stored by the browser on request. */
import { useSyncExternalStore } from "react";

const KEY = "lockstep.token";
const listeners = new Set<() => void>();

export function readToken(): string | null {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
}

export function keepToken(token: string, remember: boolean): void {
  (remember ? localStorage : sessionStorage).setItem(KEY, token);
  tell();
}

export function forgetToken(): void {
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
