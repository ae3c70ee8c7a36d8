import { existsSync, globSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";

const SOURCES = new URL("../", import.meta.url).pathname;
const STYLES = new URL("../../node_modules/@mantine/core/styles/", import.meta.url).pathname;

it("has the styles of each component of Mantine that a page imports", () => {
  const given = readFileSync(`${SOURCES}app/mantine.ts`, "utf8");
  const named = globSync(`${SOURCES}**/*.tsx`).flatMap((path) => {
    const [, names] = /import \{([^}]*)\} from "@mantine\/core"/.exec(readFileSync(path, "utf8")) ?? [];
    return names?.split(",").map((name) => name.trim()) ?? [];
  });
  const styled = [...new Set(named)].filter((name) => existsSync(`${STYLES}${name}.css`));
  expect(styled.length).toBeGreaterThan(5);
  for (const name of styled) expect(given).toContain(`/${name}.css"`);
});
