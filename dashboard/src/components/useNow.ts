/** The current time, updated every second, for ages and durations. */
import { useEffect, useState } from "react";

export function useNow(everySeconds = 1): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everySeconds * 1_000);
    return () => clearInterval(timer);
  }, [everySeconds]);
  return now;
}
