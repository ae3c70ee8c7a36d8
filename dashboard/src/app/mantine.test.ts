import { existsSync, globSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";

const SOURCES = new URL("../", import.meta.url).pathname;
const STYLES = new URL("../../node_modules/@mantine/core/styles/", import.meta.url).pathname;
const HUBS = ["components/mantine.ts", "components/Button.tsx"];
const PAGES = globSync(`${SOURCES}**/*.tsx`).filter((path) => !path.includes("/testing/") && !path.includes(".test."));

function namesIn(path: string): string[] {
  const [, names] = /(?:import|export) \{([^}]*)\} from "@mantine\/core"/.exec(readFileSync(path, "utf8")) ?? [];
  return names?.split(",").flatMap((name) => name.trim() || []) ?? [];
}
const isStyled = (name: string) => existsSync(`${STYLES}${name}.layer.css`);

it("has the styles of each component of Mantine that the pages use", () => {
  const given = HUBS.map((hub) => readFileSync(`${SOURCES}${hub}`, "utf8")).join("\n");
  const styled = HUBS.flatMap((hub) => namesIn(`${SOURCES}${hub}`)).filter(isStyled);
  expect(styled.length).toBeGreaterThan(5);
  for (const name of styled) expect(given).toContain(`/${name}.layer.css"`);
});

it.each([
  ["button", "Button.tsx"],
  ["select", "Select.tsx"],
])("has one %s for all pages", (element, owner) => {
  const raw = PAGES.filter((path) => new RegExp(`<${element}\\b`).test(readFileSync(path, "utf8")));
  expect(raw.filter((path) => !path.endsWith(`/components/${owner}`))).toEqual([]);
});

it("is the only way to them, so that no page is drawn without their styles", () => {
  const others = PAGES.filter((path) => !HUBS.some((hub) => path.endsWith(hub)));
  expect(others.filter((path) => namesIn(path).some(isStyled))).toEqual([]);
});
