/** Part of a page that fills the rest of the window's height. */
import { type ReactNode, useLayoutEffect, useRef, useState } from "react";

interface FillingProps {
  /** Pixels that are left free at the lower edge. */
  below: number;
  least: number;
  children: (height: number) => ReactNode;
}

export function Filling({ below, least, children }: FillingProps) {
  const element = useRef<HTMLDivElement>(null);
  const [height, setHeight] = useState<number | null>(null);
  useLayoutEffect(() => {
    const measure = () => {
      const top = element.current?.getBoundingClientRect().top ?? 0;
      setHeight(Math.max(least, Math.floor(window.innerHeight - top - below)));
    };
    measure();
    window.addEventListener("resize", measure);
    return () => window.removeEventListener("resize", measure);
  }, [below, least]);
  return <div ref={element}>{height === null ? null : children(height)}</div>;
}
