/** Full-screen card with a legend of lines and marks, and a zoom without a mouse. */
import { useRef } from "react";
import type { Summary } from "@/api/summaries";
import { CloseButton, Modal } from "@/components/mantine";
import type { Figures } from "@/lib/curves";
import { TOLD_APART } from "@/lib/palette";
import type { CardContext } from "./Card";
import { CardActions } from "./CardActions";
import { CardFigures } from "./CardFigures";
import { useChartColours } from "./colours";
import classes from "./Expanded.module.css";
import { Filling } from "./Filling";
import { MarkLegend } from "./MarkLegend";
import { type Drawing, Plot } from "./Plot";
import { Swatch } from "./Swatch";
import { legend, saveDrawn, savePicture } from "./saving";
import { YRange } from "./YRange";
import { ZoomButtons } from "./ZoomButtons";

const LEAST_HEIGHT = 208;
/** Space below the chart: the edge, and the legend of marks in two lines on a phone. */
const EDGE = 16;
const LEGEND = 44;

interface ExpandedProps extends Pick<CardContext, "isAlone"> {
  drawing: Drawing;
  figures: Figures | null;
  summary: Summary | undefined;
  onClose: () => void;
  onEveryPoint: () => void;
}

export function Expanded(props: ExpandedProps) {
  const { drawing, figures, summary, isAlone, onClose, onEveryPoint } = props;
  const { lines, marks, axis, series } = drawing;
  const { name: metric, unit } = series;
  const canvas = useRef<HTMLCanvasElement>(null);
  const colours = useChartColours();
  const named = legend(lines);
  return (
    <Modal.Root opened onClose={onClose} fullScreen transitionProps={{ duration: 0 }}>
      <Modal.Content aria-label={metric} className={classes.content}>
        <Modal.Body>
          <div className={classes.head}>
            <h2 className={classes.name}>
              {metric} <span className={classes.unit}>{unit}</span>
            </h2>
            {figures ? <CardFigures series={series} figures={figures} summary={summary} /> : null}
            <ZoomButtons {...drawing} />
            <YRange metric={metric} />
            <CardActions
              metric={metric}
              onPicture={() => canvas.current && savePicture(metric, lines, marks, canvas.current, colours)}
              onDrawn={() => saveDrawn(metric, lines, axis)}
              onEveryPoint={onEveryPoint}
            />
            <CloseButton className={classes.close} aria-label="Close" onClick={onClose} />
          </div>
          {isAlone ? null : (
            <ul className={classes.legend}>
              {named.slice(0, TOLD_APART).map(({ job, name, slot }) => (
                <li key={job}>
                  <Swatch slot={slot} /> {name}
                </li>
              ))}
              {named.length > TOLD_APART ? <li>and {named.length - TOLD_APART} more</li> : null}
            </ul>
          )}
          <Filling least={LEAST_HEIGHT} below={EDGE + (marks.length > 0 ? LEGEND : 0)}>
            {(height) => <Plot {...drawing} height={height} canvas={canvas} />}
          </Filling>
          <MarkLegend marks={marks} />
        </Modal.Body>
      </Modal.Content>
    </Modal.Root>
  );
}
