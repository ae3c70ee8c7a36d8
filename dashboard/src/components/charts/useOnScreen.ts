/** Whether an element is on the screen, or nearly; others need no drawing and no requests. */
import { type RefObject, useEffect, useState } from "react";

const NEARLY = "300px 0px";

export function useOnScreen(element: RefObject<HTMLElement | null>): boolean {
  const [isSeen, setIsSeen] = useState(false);
  useEffect(() => {
    if (element.current === null) return;
    const observer = new IntersectionObserver((entries) => setIsSeen(entries.at(-1)?.isIntersecting ?? false), {
      rootMargin: NEARLY,
    });
    observer.observe(element.current);
    return () => observer.disconnect();
  }, [element]);
  return isSeen;
}
