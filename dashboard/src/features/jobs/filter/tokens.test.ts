import { expect, it } from "vitest";
import { isCondition, isOpen, tokenFor, tokensOf, withToken } from "./tokens";

it.each([
  ["", []],
  ["  gpt   owner:ada ", ["gpt", "owner:ada"]],
  ['owner:"a, b" "two words"', ['owner:"a, b"', '"two words"']],
  ['"label:my key"="a b" lr<1e-3', ['"label:my key"="a b"', "lr<1e-3"]],
  ['gpt name:"not closed yet', ["gpt", 'name:"not closed yet']],
])("splits %s as the service does", (filter, tokens) => {
  expect(tokensOf(filter)).toEqual(tokens);
  expect(tokensOf(tokens.join(" "))).toEqual(tokens);
});

it.each([
  ["gpt", false, false],
  ["gpus>", false, true],
  ['"a:b"', false, false],
  ['name:"two', true, true],
])("%s: open %s, a condition %s", (token, open, condition) => {
  expect([isOpen(token), isCondition(token)]).toEqual([open, condition]);
});

it.each([
  ["owner", "ada", "owner:ada"],
  ["project", "*", 'project:"*"'],
  ["label:team", "vision", "label:team=vision"],
  ["label:my key", "a, b", 'label:"my key"="a, b"'],
  ["setting:args.lr", "1e-3", "setting:args.lr=1e-3"],
])("%s with the value %s is the token %s", (column, value, token) => {
  expect(tokenFor(column, value)).toBe(token);
  expect(tokensOf(token)).toEqual([token]);
});

it("adds a token once", () => {
  expect(withToken(undefined, "owner:ada")).toBe("owner:ada");
  expect(withToken("gpt", "owner:ada")).toBe("gpt owner:ada");
  expect(withToken("owner:ada gpt", "owner:ada")).toBe("owner:ada gpt");
});
