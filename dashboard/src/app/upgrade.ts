/**
 * Reload of a tab whose build is gone: after an upgrade of the service it requests files that do
 * not exist any more.
 *
 * Such a tab is reloaded once for each build. Drafts are stored by the browser, so no input is
 * lost.
 */

/** The build for which this tab was loaded again. */
const KEY = "lockstep.reloaded";

/** The script that a page of the service begins with; its name changes with every build. */
export function mainScript(html: string): string | null {
  return /<script[^>]*\ssrc="([^"]+)"/.exec(html)?.[1] ?? null;
}

/** The main script that the service has now; null while it does not answer. */
async function servedScript(): Promise<string | null> {
  try {
    const answer = await fetch("/", { cache: "no-store" });
    return answer.ok ? mainScript(await answer.text()) : null;
  } catch {
    return null;
  }
}

function loadedScript(): string | null {
  return document.querySelector("script[type=module][src]")?.getAttribute("src") ?? null;
}

/** Load the tab again if the service has another build, and this was not tried for that build before. */
export async function reloadIfUpgraded(reload = () => window.location.reload()): Promise<void> {
  const served = await servedScript();
  if (served === null || served === loadedScript() || sessionStorage.getItem(KEY) === served) return;
  sessionStorage.setItem(KEY, served);
  reload();
}

/** A part of a page that cannot be loaded is the sign of an upgrade; or of a bad connection, where loading must wait. */
export function watchUpgrades(): void {
  window.addEventListener("vite:preloadError", () => void reloadIfUpgraded());
}

/** Load the tab again where the service answers; false where it does not, and loading would only lose the page. */
export async function reloadIfReached(reload = () => window.location.reload()): Promise<boolean> {
  const isReached = (await servedScript()) !== null;
  if (isReached) reload();
  return isReached;
}
