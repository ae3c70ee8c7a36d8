/** A yes or no that this browser remembers. */
import { useState } from "react";

export function useRemembered(key: string): [boolean, (value: boolean) => void] {
  const [value, setValue] = useState(() => localStorage.getItem(key) === "yes");
  return [
    value,
    (next) => {
      localStorage.setItem(key, next ? "yes" : "no");
      setValue(next);
    },
  ];
}
