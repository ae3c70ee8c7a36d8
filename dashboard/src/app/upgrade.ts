/**
 * Reload of a tab whose build is gone: after an upgrade of the service it requests files that do
 * not exist any more.
 *
 * Such a tab is reloaded once for each build. Drafts are stored by the browser, so no input is
 * lost.
 */

/** The build for which this tab was loaded again. */
const KEY = "lockstep.reloaded";

/** The scripts that a page of the service begins with; some of their names change with every build. */
export function firstScripts(html: string): string | null {
  const found = [...html.matchAll(/<script[^>]*\ssrc="([^"]+)"/g)].map(([, src]) => src);
  return found.join(" ") || null;
}

/** The scripts that the service has now; null while it does not answer. */
async function servedScripts(): Promise<string | null> {
  try {
    const answer = await fetch("/", { cache: "no-store" });
    return answer.ok ? firstScripts(await answer.text()) : null;
  } catch {
    return null;
  }
}

function loadedScripts(): string | null {
  const found = [...document.querySelectorAll("script[type=module][src]")].map((each) => each.getAttribute("src"));
  return found.join(" ") || null;
}

/** Load the tab again if the service has another build, and this was not tried for that build before. */
export async function reloadIfUpgraded(reload = () => window.location.reload()): Promise<void> {
  const served = await servedScripts();
  if (served === null || served === loadedScripts() || sessionStorage.getItem(KEY) === served) return;
  sessionStorage.setItem(KEY, served);
  reload();
}

/** A part of a page that cannot be loaded is the sign of an upgrade; or of a bad connection, where loading must wait. */
export function watchUpgrades(): void {
  window.addEventListener("vite:preloadError", () => void reloadIfUpgraded());
}

/** Load the tab again where the service answers; false where it does not, and loading would only lose the page. */
export async function reloadIfReached(reload = () => window.location.reload()): Promise<boolean> {
  const isReached = (await servedScripts()) !== null;
  if (isReached) reload();
  return isReached;
}
