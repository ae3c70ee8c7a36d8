/** The scatter as a drawing: arrow keys, pointer and a tap read its points; Enter, a click and a second tap open the run. */
import { useElementSize } from "@mantine/hooks";
import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, type PointerEvent, useRef, useState } from "react";
import { number } from "@/lib/format";
import { BASELINE, colourName, GREY } from "@/lib/palette";
import { counted } from "@/lib/resources";
import classes from "./ScatterCard.module.css";
import { type Dot, type Scale, type Scatter, shareOn } from "./scatter";

const HEIGHT = 260;
const EDGE = { left: 56, right: 16, top: 8, bottom: 40 };
/** Width of a letter of a label, with some air. */
const LETTER = 8;
/** A pointer reads the nearest point within so many pixels. */
const NEAR = 24;

interface ScatterCardProps {
  scatter: Scatter;
  slots: ReadonlyMap<string, number>;
  /** The job under the pointer in the table. */
  hot: string | null;
  onHot: (id: string | null) => void;
}

export function ScatterCard({ scatter, slots, hot, onHot }: ScatterCardProps) {
  const { ref, width } = useElementSize();
  const navigate = useNavigate();
  const [read, setRead] = useState<string | null>(null);
  /** False for the tap that reads a point: a finger cannot hover. */
  const opens = useRef(true);
  const { dots, x, y, left } = scatter;
  const placeX = (value: number) => EDGE.left + shareOn(x, value) * (width - EDGE.left - EDGE.right);
  const placeY = (value: number) => EDGE.top + (1 - shareOn(y, value)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const marked = dots.find(({ run }) => run.job.id === (read ?? hot));
  const at = dots.findIndex(({ run }) => run.job.id === read);
  const go = (dot: Dot | undefined) => {
    setRead(dot?.run.job.id ?? null);
    onHot(dot?.run.job.id ?? null);
  };
  const open = () => {
    if (marked !== undefined) void navigate({ to: "/jobs/$job", params: { job: marked.run.job.id } });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const by = event.shiftKey ? 10 : 1;
    const next: Record<string, number> = { ArrowRight: at + by, ArrowLeft: at - by, Home: 0, End: dots.length - 1 };
    const place = next[event.key];
    if (place !== undefined) go(dots[Math.max(0, Math.min(dots.length - 1, place))]);
    else if (event.key === "Enter") open();
    else if (event.key === "Escape" && read !== null) go(undefined);
    else return;
    event.preventDefault();
    // The keys of the page mean something else.
    event.stopPropagation();
  };
  const nearestTo = (event: PointerEvent): Dot | undefined => {
    const box = event.currentTarget.getBoundingClientRect();
    const far = ({ x: dotX, y: dotY }: Dot) =>
      Math.hypot(placeX(dotX) - event.clientX + box.left, placeY(dotY) - event.clientY + box.top);
    const nearest = [...dots].sort((a, b) => far(a) - far(b))[0];
    return nearest !== undefined && far(nearest) <= NEAR ? nearest : undefined;
  };
  const onPointerDown = (event: PointerEvent) => {
    const found = nearestTo(event);
    opens.current = event.pointerType === "mouse" || (found !== undefined && found.run.job.id === read);
    go(found);
  };
  return (
    <section className={classes.card} aria-label="Scatter">
      <h2>
        {y.title} <span>against {x.title}</span>
      </h2>
      <div
        ref={ref}
        role="application"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it is what the keyboard reads the drawing with
        tabIndex={0}
        className={classes.drawing}
        aria-label={`Read ${counted(dots.length, "run")} by arrow keys`}
        data-at-run={marked === undefined ? undefined : true}
        onKeyDown={onKeyDown}
        onPointerMove={(event) => go(nearestTo(event))}
        onPointerDown={onPointerDown}
        onPointerLeave={({ pointerType }) => pointerType === "mouse" && go(undefined)}
        onBlur={() => go(undefined)}
        onClick={() => opens.current && open()}
      >
        <svg width={width} height={HEIGHT} aria-hidden="true">
          <Axes x={x} y={y} width={width} placeX={placeX} placeY={placeY} />
          {dots.map(({ run, x: dotX, y: dotY }) => (
            <circle
              key={run.job.id}
              data-run={run.job.id}
              cx={placeX(dotX)}
              cy={placeY(dotY)}
              r={slots.get(run.job.id) === BASELINE ? 6 : 4.5}
              fill={`var(${colourName(slots.get(run.job.id) ?? GREY)})`}
              className={classes.dot}
            />
          ))}
          {marked === undefined ? null : (
            <circle cx={placeX(marked.x)} cy={placeY(marked.y)} r={8} className={classes.ring} />
          )}
        </svg>
      </div>
      <p className={classes.words}>
        <span aria-live="polite">
          {marked === undefined
            ? ""
            : `${marked.run.job.name}: ${x.title} ${marked.value}, ${y.title} ${number(marked.y)}`}
        </span>
        {left === 0 ? null : <span>{counted(left, "run")} without both values</span>}
      </p>
    </section>
  );
}

interface AxesProps {
  x: Scale;
  y: Scale;
  width: number;
  placeX: (value: number) => number;
  placeY: (value: number) => number;
}

function Axes({ x, y, width, placeX, placeY }: AxesProps) {
  const bottom = HEIGHT - EDGE.bottom;
  // A label that would touch the one before it is left out.
  const labelled: number[] = [];
  let free = 0;
  for (const { at, label } of x.ticks) {
    const half = (label.length * LETTER) / 2;
    if (placeX(at) - half < free) continue;
    labelled.push(at);
    free = placeX(at) + half + LETTER;
  }
  return (
    <g className={classes.axes}>
      {y.ticks.map(({ at, label }) => (
        <g key={at}>
          <line x1={EDGE.left} x2={width - EDGE.right} y1={placeY(at)} y2={placeY(at)} />
          <text x={EDGE.left - 8} y={placeY(at) + 4} textAnchor="end">
            {label}
          </text>
        </g>
      ))}
      {x.ticks.map(({ at, label }) => (
        <g key={at}>
          <line x1={placeX(at)} x2={placeX(at)} y1={EDGE.top} y2={bottom} />
          {labelled.includes(at) ? (
            <text x={placeX(at)} y={bottom + 16} textAnchor="middle">
              {label}
            </text>
          ) : null}
        </g>
      ))}
      <text x={(EDGE.left + width - EDGE.right) / 2} y={bottom + 34} textAnchor="middle">
        {x.title}
        {x.isLog ? ", logarithmic" : ""}
      </text>
    </g>
  );
}
