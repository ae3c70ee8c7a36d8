import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, screen } from "@testing-library/react";
import { useState } from "react";
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { FieldProblem } from "@/api/generated";
import { render } from "@/testing/render";
import { readText } from "../text/read";
import { SpecForm } from "./SpecForm";

vi.mock("@/api/generated/client.gen", () => ({
  client: { get: async () => ({ data: { components: { schemas: {} } } }) },
}));

const TEXT = `# mine
name: first # its name
kind: train
resources: {gpus: 2}
train:
  task: image_classification
  batch: {size: 64, micro_size: 8}
  steps: 200 # enough
  optimizer: {name: adamw, lr: 3.0e-3, betas: [0.9, 0.95]}
`;
const FULL = { name: "first", project: "default", train: { seed: 1337, optimizer: { lr: 0.003 } } };

let text: string;

function Harness({ problems = [], start = TEXT }: { problems?: FieldProblem[]; start?: string }) {
  const [now, setNow] = useState(start);
  const spec = readText(now);
  const put = (next: string) => {
    text = next;
    setNow(next);
  };
  return (
    <QueryClientProvider client={new QueryClient()}>
      <SpecForm
        form={{
          spec,
          edit: (change) => put(change(now)),
          filled: { full: FULL, written: readText(start).value },
          problems,
        }}
        unreadable={spec.unreadable}
        replace={put}
      />
    </QueryClientProvider>
  );
}

function type(label: string, value: string): HTMLInputElement {
  const field = screen.getByLabelText<HTMLInputElement>(label);
  fireEvent.focus(field);
  fireEvent.change(field, { target: { value } });
  return field;
}

beforeEach(() => {
  text = TEXT;
});

describe("the form", () => {
  it("shows what the text says, as it is written there, and the defaults that the service named", () => {
    render(<Harness />);
    expect(screen.getByLabelText<HTMLInputElement>("Learning rate").value).toBe("3.0e-3");
    expect(screen.getByLabelText<HTMLInputElement>("Batch size").value).toBe("64");
    expect(screen.getByLabelText<HTMLInputElement>("Seed")).toMatchObject({ value: "", placeholder: "1337" });
    // An argument of the task that the text does not name.
    expect(screen.getByLabelText<HTMLInputElement>("eval_fraction").placeholder).toBe("0.2");
  });

  it("calls no default what was only written before", () => {
    render(<Harness />);
    fireEvent.blur(type("Learning rate", ""));
    expect(text).not.toContain("lr:");
    expect(screen.getByLabelText<HTMLInputElement>("Learning rate").placeholder).toBe("");
  });

  it("changes the text in place", () => {
    render(<Harness />);
    type("Batch size", "96");
    expect(text).toBe(TEXT.replace("size: 64", "size: 96"));
    type("Learning rate", "1e-4");
    expect(text).toBe(TEXT.replace("size: 64", "size: 96").replace("3.0e-3", "1e-4"));
    type("Name", "8");
    expect(text).toContain('name: "8" # its name\n');
  });

  it("keeps the place of a field that is emptied until one leaves it", () => {
    render(<Harness />);
    const field = type("Micro-batch size", "");
    expect(text).toContain("batch: {size: 64, micro_size: null}");
    fireEvent.change(field, { target: { value: "auto" } });
    expect(text).toBe(TEXT.replace("micro_size: 8", "micro_size: auto"));
    fireEvent.change(field, { target: { value: "" } });
    fireEvent.blur(field);
    expect(text).toBe(TEXT.replace(", micro_size: 8", ""));
  });

  it("counts in epochs instead of steps, without taking over their number", () => {
    render(<Harness />);
    fireEvent.click(screen.getByRole("button", { name: "Count in epochs instead" }));
    expect(text).toContain("  epochs: null # enough\n");
    type("Epochs", "3");
    expect(readText(text).value).toMatchObject({ train: { epochs: 3 } });
    expect(text).not.toContain("steps: 200");
  });

  it("leaves behind what the other optimizer does not know", () => {
    render(<Harness />);
    fireEvent.change(screen.getByLabelText("Optimizer"), { target: { value: "sgd" } });
    expect(text).toBe(TEXT.replace("name: adamw, lr: 3.0e-3, betas: [0.9, 0.95]", "name: sgd, lr: 3.0e-3"));
  });

  it("changes the kind with its section, and shows that section's fields", () => {
    render(<Harness />);
    fireEvent.change(screen.getByLabelText("Kind"), { target: { value: "script" } });
    expect(readText(text).value).toEqual({
      name: "first",
      kind: "script",
      resources: { gpus: 2 },
      script: { command: ["train.py"] },
    });
    type("Command, as after torchrun", "train.py --note 'two words' ");
    expect(readText(text).value).toMatchObject({ script: { command: ["train.py", "--note", "two words"] } });
    expect(screen.getByLabelText<HTMLInputElement>("Command, as after torchrun").value).toBe(
      "train.py --note 'two words' ",
    );
  });

  it("adds, changes, renames and removes labels", () => {
    render(<Harness />);
    type("Name of another label", "team");
    fireEvent.click(screen.getAllByRole("button", { name: "Add" })[0] as HTMLElement);
    type("Value of the label team", "1.0");
    expect(text).toContain('labels: {team: "1.0"}');
    const name = screen.getByLabelText<HTMLInputElement>("Name of the label team");
    name.value = "group";
    fireEvent.blur(name);
    expect(text).toContain('labels: {group: "1.0"}');
    fireEvent.click(screen.getByRole("button", { name: "Remove the label group" }));
    expect(text).toBe(TEXT);
  });

  it("shows the bounds of an elastic job, and makes a fixed number of them", () => {
    render(<Harness start={TEXT.replace("gpus: 2", "gpus: {min: 1, max: 4}")} />);
    type("GPUs at most", "8");
    expect(text).toContain("resources: {gpus: {min: 1, max: 8}}");
    fireEvent.click(screen.getByRole("button", { name: "Fixed number" }));
    expect(text).toContain("resources: {gpus: 8}");
  });

  it("marks the field that the service refuses, in its words", () => {
    const problem = { pointer: "/train/batch/size", message: "expected more", next_step: "use 2 or more" };
    render(<Harness problems={[problem]} />);
    const field = screen.getByLabelText("Batch size");
    expect(field.getAttribute("aria-invalid")).toBe("true");
    const words = document.getElementById(field.getAttribute("aria-describedby") ?? "");
    expect(words?.textContent).toContain("expected more: use 2 or more");
    expect(screen.getByLabelText("Micro-batch size").getAttribute("aria-invalid")).toBe("false");
  });

  it("is closed while the text is not YAML, and says where", () => {
    render(<Harness start={`${TEXT}oops: [1,\n`} />);
    expect(screen.getByRole("status").textContent).toContain("Line 11");
    expect(screen.getByLabelText("Name").closest("fieldset")?.disabled).toBe(true);
  });

  it("keeps its note at the foot, and lays it over other fields only for one that has the focus", () => {
    render(<Harness />);
    const note = screen.getByText(/^Every other field/).parentElement as HTMLElement;
    expect(note.dataset.asked).toBe("false");
    fireEvent.focus(screen.getByLabelText("Name"));
    expect(note.dataset.asked).toBe("true");
  });

  it("leaves what it cannot show to the YAML", () => {
    render(<Harness start={TEXT.replace("steps: 200", "steps: [1, 2]")} />);
    expect(screen.getByLabelText<HTMLInputElement>("Steps")).toMatchObject({
      disabled: true,
      placeholder: "written in the YAML",
    });
  });
});
