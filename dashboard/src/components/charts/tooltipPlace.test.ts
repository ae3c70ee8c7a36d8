import { expect, it } from "vitest";
import { randomFrom } from "@/testing/random";
import { tooltipPlace } from "./tooltipPlace";

it("is always in the window, and where there is room it covers neither the cursor nor, on a telephone, the chart", () => {
  const random = randomFrom(61);
  for (let round = 0; round < 500; round += 1) {
    const window = { width: 360 + random() * 1_200, height: 600 + random() * 600 };
    const box = { width: 120 + random() * 220, height: 50 + random() * 150 };
    const top = random() * (window.height - 200);
    const area = { top, bottom: top + 150 };
    const x = 60 + random() * (window.width - 80);
    const place = tooltipPlace(box, x, area, window);
    expect(place.left).toBeGreaterThanOrEqual(8);
    expect(place.left + box.width).toBeLessThanOrEqual(window.width - 8);
    expect(place.top).toBeGreaterThanOrEqual(8);
    expect(place.top + box.height).toBeLessThanOrEqual(window.height - 8);
    const isBeside = place.left > x || place.left + box.width < x;
    const hasRoom = x - 14 - box.width >= 8 && x + 14 + box.width <= window.width - 8;
    if (hasRoom) expect(isBeside).toBe(true);
    const isOff = place.top >= area.bottom || place.top + box.height <= area.top;
    const hasRoomOff = area.top - 8 - box.height >= 8 || area.bottom + 56 + box.height <= window.height - 8;
    if (!isBeside && hasRoomOff) expect(isOff).toBe(true);
  }
});
