/** The height of the bar above every page as `--bar-height`: what stays in view below it begins there. */
import { type RefObject, useLayoutEffect, useRef } from "react";

export function useBarHeight(): RefObject<HTMLElement | null> {
  const bar = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    const element = bar.current;
    if (element === null) return;
    const tell = () => document.documentElement.style.setProperty("--bar-height", `${element.offsetHeight}px`);
    tell();
    const sizes = new ResizeObserver(tell);
    sizes.observe(element);
    return () => sizes.disconnect();
  }, []);
  return bar;
}
