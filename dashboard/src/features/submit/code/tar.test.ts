import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { END, header, padding } from "./tar";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "tar-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

it("is read by the system's tar: any length of content, long names, other alphabets, the executable bit", () => {
  const files = [
    { name: "train.py", content: "print('hi')\n", isExecutable: false },
    { name: "run.sh", content: "#!/bin/sh\n", isExecutable: true },
    { name: "empty", content: "", isExecutable: false },
    { name: "sub/block", content: "x".repeat(512), isExecutable: false },
    { name: `deep/${"folder-of-some-length/".repeat(8)}file.py`, content: "deep", isExecutable: false },
    { name: `${"n".repeat(100)}`, content: "exactly", isExecutable: false },
    { name: "größe/日本.txt", content: "ü".repeat(700), isExecutable: false },
    // The length of its record has one digit more for counting itself.
    { name: `p/${"q".repeat(88)}ä`, content: "edge", isExecutable: false },
  ];
  const parts = files.flatMap(({ name, content, isExecutable }) => {
    const bytes = Buffer.from(content);
    return [header(name, bytes.length, isExecutable), bytes, padding(bytes.length)];
  });
  const archive = join(folder, "a.tar");
  writeFileSync(archive, Buffer.concat([...parts, END]));
  const listed = execFileSync("tar", ["-tf", archive, "--quoting-style=literal"], {
    encoding: "utf8",
    env: { ...process.env, LC_ALL: "C.UTF-8" },
  });
  expect(listed.trimEnd().split("\n")).toEqual(files.map(({ name }) => name));
  execFileSync("tar", ["-xf", archive, "-C", folder]);
  for (const { name, content, isExecutable } of files) {
    expect(readFileSync(join(folder, name), "utf8")).toBe(content);
    expect((statSync(join(folder, name)).mode & 0o100) !== 0).toBe(isExecutable);
  }
});

it("says the right length of a record, at every length of a name", () => {
  for (let length = 101; length < 1_024; length += 1) {
    const made = header("a".repeat(length), 0, false);
    const record = new TextDecoder().decode(made.slice(512)).split("\n")[0] ?? "";
    expect(Number.parseInt(record, 10)).toBe(record.length + 1);
    expect(made.length % 512).toBe(0);
  }
});
