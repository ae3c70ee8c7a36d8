/** Browser and system of a sign-in in words, from its `User-Agent`. */

/** In this order: Edge also names Chrome, which also names Safari. */
const PROGRAMS: readonly [RegExp, string][] = [
  [/^lockstep\b/i, "lockstep command"],
  [/\bEdg\//, "Edge"],
  [/\bFirefox\//, "Firefox"],
  [/\b(Headless)?Chrome\//, "Chrome"],
  [/\bSafari\//, "Safari"],
];
/** In this order: Android also names Linux, an iPhone also names macOS. */
const SYSTEMS: readonly [RegExp, string][] = [
  [/\bAndroid\b/, "Android"],
  [/\b(iPhone|iPad)\b/, "iOS"],
  [/\bWindows\b/, "Windows"],
  [/\bMac OS X\b/, "macOS"],
  [/\bLinux\b/, "Linux"],
];

export function browserWords(agent: string): string {
  const named = (names: readonly [RegExp, string][]) => names.find(([pattern]) => pattern.test(agent))?.[1];
  const program = named(PROGRAMS);
  if (program === undefined) return agent === "" ? "not known" : agent;
  const system = named(SYSTEMS);
  return system === undefined ? program : `${program} on ${system}`;
}
