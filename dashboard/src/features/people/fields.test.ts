import { expect, it } from "vitest";
import { Failure } from "@/api/client";
import { refusedField } from "./fields";

it("finds the message about a field, and none in other failures", () => {
  const error = Failure.answered(422, { errors: [{ pointer: "/old", message: "is not the present password" }] });
  expect(refusedField(error, "/old")).toBe("is not the present password");
  expect([refusedField(error, "/new"), refusedField(null, "/old"), refusedField(new Error("x"), "/old")]).toEqual([
    null,
    null,
    null,
  ]);
});
