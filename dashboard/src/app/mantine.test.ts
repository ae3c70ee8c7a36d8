import { existsSync, globSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";

const SOURCES = new URL("../", import.meta.url).pathname;
const STYLES = new URL("../../node_modules/@mantine/core/styles/", import.meta.url).pathname;
const COMPONENTS = "components/mantine.ts";

function namesIn(path: string): string[] {
  const [, names] = /(?:import|export) \{([^}]*)\} from "@mantine\/core"/.exec(readFileSync(path, "utf8")) ?? [];
  return names?.split(",").flatMap((name) => name.trim() || []) ?? [];
}
const isStyled = (name: string) => existsSync(`${STYLES}${name}.layer.css`);

it("has the styles of each component of Mantine that the pages use", () => {
  const given = readFileSync(`${SOURCES}${COMPONENTS}`, "utf8");
  const styled = namesIn(`${SOURCES}${COMPONENTS}`).filter(isStyled);
  expect(styled.length).toBeGreaterThan(5);
  for (const name of styled) expect(given).toContain(`/${name}.layer.css"`);
});

it("is the only way to them, so that no page is drawn without their styles", () => {
  const others = globSync(`${SOURCES}**/*.tsx`).filter((path) => namesIn(path).some(isStyled));
  expect(others).toEqual([]);
});
