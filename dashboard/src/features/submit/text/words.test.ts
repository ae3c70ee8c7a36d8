import { expect, it } from "vitest";
import { joinWords, splitWords } from "./words";

it.each([
  ["train.py --lr 3e-4", ["train.py", "--lr", "3e-4"]],
  ["  a   b ", ["a", "b"]],
  ['a \'b c\' "d \\"e\\""', ["a", "b c", 'd "e"']],
  ['--name="two words"', ["--name=two words"]],
  ['a ""', ["a", ""]],
  ["a\\b", ["a\\b"]],
  ["not 'closed yet", ["not", "closed yet"]],
  ["", []],
])("%j is %j", (line, words) => {
  expect(splitWords(line)).toEqual(words);
});

it("comes back as it went, whatever is in the words", () => {
  const signs = ["a", " ", '"', "'", "\\", "=", "\t", "ü"];
  for (let number = 0; number < signs.length ** 3; number += 1) {
    const word = [0, 1, 2].map((place) => signs[Math.floor(number / signs.length ** place) % signs.length]).join("");
    expect(splitWords(joinWords([word, "x", "", word]))).toEqual([word, "x", "", word]);
  }
});
