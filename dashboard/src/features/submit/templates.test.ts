import { expect, it } from "vitest";
import { TEMPLATES, templatesIn } from "./templates";
import { readText } from "./text/read";

it.each(TEMPLATES.map(({ name, text }) => [name, text]))(
  "%s is a document with a name and the section of its kind",
  (_, text) => {
    const { unreadable, value } = readText(text);
    expect(unreadable).toBeNull();
    const spec = value as Record<string, unknown>;
    expect(spec.name).toMatch(/^[a-z0-9-]+$/);
    expect(spec[String(spec.kind)]).toBeTypeOf("object");
  },
);

it("names the project of the caller behind the job", () => {
  const [first] = templatesIn("nlp");
  expect(first?.text).toMatch(/^name: .*\nproject: nlp\n/m);
  expect(templatesIn(null)).toBe(TEMPLATES);
});
