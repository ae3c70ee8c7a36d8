/** Values that are made on each render, as the same objects as long as they say the same. */
import { useState } from "react";

/** The former value if the new one is equal to it as a document. */
export function useSame<T>(value: T): T {
  return useKept(value, (a, b) => JSON.stringify(a) === JSON.stringify(b));
}

/** The former list if the new one has the same items. */
export function useSameItems<T>(items: readonly T[]): readonly T[] {
  return useKept(items, (a, b) => a.length === b.length && a.every((item, place) => item === b[place]));
}

function useKept<T>(value: T, isSame: (a: T, b: T) => boolean): T {
  const [kept, setKept] = useState(value);
  if (kept === value || isSame(kept, value)) return kept;
  setKept(value);
  return value;
}
