// @vitest-environment jsdom
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Failure } from "@/api/client";
import { getUpload, putUpload } from "@/api/generated";
import { LIMITS } from "./choose";
import { sendArchive } from "./send";

vi.mock("@/api/generated", () => ({ getUpload: vi.fn(), putUpload: vi.fn() }));

/** SHA-256 of the three bytes "abc", from FIPS 180-2. */
const ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const file = (size = 3) =>
  ({ name: "code.tar.gz", size, arrayBuffer: async () => new TextEncoder().encode("abc").buffer }) as unknown as File;
let said: string[];
const say = (words: string) => said.push(words);

beforeEach(() => {
  said = [];
  vi.stubGlobal("isSecureContext", true);
  vi.mocked(putUpload).mockResolvedValue({ data: { sha256: ABC, bytes: 3, files: 1, created: true } } as never);
});
afterEach(() => {
  vi.clearAllMocks();
  vi.unstubAllGlobals();
});

it("sends an archive under its digest, and says what it does", async () => {
  vi.mocked(getUpload).mockRejectedValue(Failure.answered(404, {}));
  expect(await sendArchive(file(), say)).toMatchObject({ sha256: ABC });
  expect(vi.mocked(putUpload).mock.calls[0]?.[0]).toMatchObject({ path: { sha256: ABC } });
  expect(said).toEqual(["Computing the digest of 3 B", "Sending 3 B"]);
});

it("does not send again what is there", async () => {
  vi.mocked(getUpload).mockResolvedValue({ data: { sha256: ABC, bytes: 3, files: 1, created: false } } as never);
  expect(await sendArchive(file(), say)).toMatchObject({ created: false });
  expect(putUpload).not.toHaveBeenCalled();
});

it("refuses an archive over the limit before it is read", async () => {
  await expect(sendArchive(file(LIMITS.bytes_max + 1), say)).rejects.toThrow(
    "code.tar.gz has 256 MiB; at most 256 MiB",
  );
  expect([said, vi.mocked(getUpload).mock.calls]).toEqual([[], []]);
});

it("says that a page over plain http cannot, and what can", async () => {
  vi.stubGlobal("isSecureContext", false);
  await expect(sendArchive(file(), say)).rejects.toMatchObject({
    nextStep: expect.stringContaining("lockstep submit FILE --code DIR"),
  });
});

it("passes on that the service is not reached", async () => {
  vi.mocked(getUpload).mockRejectedValue(Failure.unreached());
  await expect(sendArchive(file(), say)).rejects.toThrow("does not answer");
  expect(putUpload).not.toHaveBeenCalled();
});
