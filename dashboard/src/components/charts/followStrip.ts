/** The strip of marks below a chart is part of it: over it, the cursor is where it would be just above. */
import type uPlot from "uplot";
import { STRIP } from "./paintMarks";

/**
 * Report whether the mouse is over the strip before the cursor moves. Return a function that ends
 * it.
 */
export function followStrip(plot: uPlot, onMove: (isThere: boolean) => void): () => void {
  const { over, root } = plot;
  let wasThere = false;
  const to = (left: number, top: number, isThere: boolean) => {
    wasThere = isThere;
    onMove(isThere);
    plot.setCursor({ left, top });
  };
  const move = ({ target, clientX, clientY }: MouseEvent) => {
    // Events over the chart itself were reported already.
    if (target instanceof Node && over.contains(target)) {
      wasThere = false;
      return;
    }
    const area = over.getBoundingClientRect();
    const isThere =
      clientY >= area.bottom && clientY <= area.bottom + STRIP + 2 && clientX >= area.left && clientX <= area.right;
    if (isThere) to(clientX - area.left, area.height - 1, true);
    else if (wasThere) to(-10, -10, false);
  };
  const leave = () => {
    if (wasThere) to(-10, -10, false);
  };
  root.addEventListener("mousemove", move);
  root.addEventListener("mouseleave", leave);
  return () => {
    root.removeEventListener("mousemove", move);
    root.removeEventListener("mouseleave", leave);
  };
}
