/** The range of a chart's y axis, typed; automatic where nothing is. */
import { useState } from "react";
import { Button } from "@/components/Button";
import { Input } from "@/components/Input";
import type { Zoom } from "@/lib/zoom";
import { useLook } from "./useLook";
import classes from "./YRange.module.css";

export function YRange({ metric }: { metric: string }) {
  const { ranges, change } = useLook();
  const range = ranges[metric];
  const [typed, setTyped] = useState({ from: text(range?.from), to: text(range?.to) });
  const set = (next: typeof typed) => {
    setTyped(next);
    const part: Zoom = { from: Number(next.from), to: Number(next.to) };
    if (next.from.trim() !== "" && next.to.trim() !== "" && part.to > part.from)
      change({ ranges: { ...ranges, [metric]: part } });
  };
  const clear = () => {
    const { [metric]: _, ...others } = ranges;
    setTyped({ from: "", to: "" });
    change({ ranges: others });
  };
  return (
    <fieldset className={classes.range} aria-label="Range of the y axis">
      <span aria-hidden>y</span>
      <Input
        size="xs"
        type="number"
        step="any"
        placeholder="auto"
        aria-label="Lowest value of the y axis"
        value={typed.from}
        onChange={(event) => set({ ...typed, from: event.target.value })}
      />
      <span aria-hidden>to</span>
      <Input
        size="xs"
        type="number"
        step="any"
        placeholder="auto"
        aria-label="Highest value of the y axis"
        value={typed.to}
        onChange={(event) => set({ ...typed, to: event.target.value })}
      />
      <Button size="xs" aria-disabled={range === undefined} onClick={clear}>
        Auto
      </Button>
    </fieldset>
  );
}

function text(value: number | undefined): string {
  return value === undefined ? "" : String(value);
}
