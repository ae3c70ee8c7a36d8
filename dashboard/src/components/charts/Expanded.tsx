/** A card on the whole screen, with what its lines are and the way back from a zoom. */
import { CloseButton, Modal } from "@mantine/core";
import { useRef } from "react";
import type { Figures } from "@/lib/curves";
import type { Line } from "@/lib/lines";
import type { CardContext } from "./Card";
import { CardActions } from "./CardActions";
import { CardFigures } from "./CardFigures";
import { useChartColours } from "./colours";
import classes from "./Expanded.module.css";
import { Plot } from "./Plot";
import { Swatch } from "./Swatch";
import { saveDrawn, savePicture } from "./saving";
import { useChartSettings } from "./settings";

const LEAST_HEIGHT = 208;
/** What is above and below the chart. */
const AROUND = 128;

interface ExpandedProps extends CardContext {
  metric: string;
  unit: string;
  lines: readonly Line[];
  figures: Figures | null;
  label: string;
  isLog: boolean;
  onClose: () => void;
  onEveryPoint: () => void;
}

export function Expanded({
  metric,
  unit,
  lines,
  figures,
  label,
  isLog,
  onClose,
  onEveryPoint,
  ...context
}: ExpandedProps) {
  const { jobs, slots, isAlone, zoom, onZoom, syncKey } = context;
  const { axis } = useChartSettings();
  const canvas = useRef<HTMLCanvasElement>(null);
  const colours = useChartColours();
  return (
    <Modal.Root opened onClose={onClose} fullScreen transitionProps={{ duration: 0 }}>
      <Modal.Content aria-label={metric} className={classes.content}>
        <Modal.Body>
          <div className={classes.head}>
            <h2 className={classes.name}>
              {metric} <span className={classes.unit}>{unit}</span>
            </h2>
            {figures ? <CardFigures metric={metric} unit={unit} figures={figures} /> : null}
            {zoom === null ? null : (
              <button type="button" className={classes.reset} onClick={() => onZoom(null)}>
                Reset zoom
              </button>
            )}
            <CardActions
              metric={metric}
              onPicture={() => canvas.current && savePicture(metric, lines, canvas.current, colours)}
              onDrawn={() => saveDrawn(metric, lines)}
              onEveryPoint={onEveryPoint}
            />
            <CloseButton className={classes.close} aria-label="Close" onClick={onClose} />
          </div>
          {isAlone ? null : (
            <ul className={classes.legend}>
              {jobs.map(({ id, name }) => (
                <li key={id}>
                  <Swatch slot={slots.get(id) ?? 0} /> {name}
                </li>
              ))}
            </ul>
          )}
          <Plot
            lines={lines}
            axis={axis}
            unit={unit}
            isLog={isLog}
            zoom={zoom}
            onZoom={onZoom}
            label={label}
            syncKey={syncKey}
            height={Math.max(LEAST_HEIGHT, window.innerHeight - AROUND)}
            canvas={canvas}
          />
        </Modal.Body>
      </Modal.Content>
    </Modal.Root>
  );
}
