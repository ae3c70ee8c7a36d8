"""Pictures of all pages, the same on each machine, and their comparison with the committed ones.

Fonts come with the test's packages and replace those of the machine; the clock of the pages stands,
and nothing moves. A committed picture has few colours. A new one is reduced to the same ones: a
pixel differs if its nearest colour is another.

Not here: the data (``story``), and the list of pages with the rules for each (``test_pictures``).
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Browser, Page

from tests.dashboard.browser import WAIT_MS
from tests.harness.processes import ROOT

FOLDER: Final = ROOT / "docs" / "dashboard"
SIZES: Final = {360: 740, 768: 1_024, 1_440: 900, 2_560: 1_440}
"""Heights of the windows, by their widths."""
COLOURS_MAX: Final = 64
FLAT_APART, APART = 2, 20
FLAT_PART: Final = 1 / 5_000
"""Colours of a committed picture differ by so many levels of a channel: those of at least this part
of the pixels are grounds and lines, and the others edges of letters and curves."""
DRAWN_BY: Final = FOLDER / "drawn_by.json"
"""The browser of the committed pictures: its version, and a digest of its ``_SAMPLE``."""
_SAMPLE: Final = """<!doctype html><style>
  body { margin: 0; background: #fff; font: 13px var(--mantine-font-family) }
  button, select { font: inherit }
</style>
<p>Hamburgefonstiv 0123456789 ▶ ✕ ●</p>
<p style="font: 600 20px var(--mantine-font-family)">val/loss × 1.25 · 46 %</p>
<p style="font: 12px var(--mantine-font-family-monospace)">Traceback (most recent call)</p>
<p><button>Retry</button><input type="checkbox" checked><select><option>mean</select></p>
<svg width="200" height="50"><path d="M0 40 C60 0 90 60 200 9" fill="none" stroke="#2f6bdb"/></svg>
<canvas></canvas><script>
  const at = document.querySelector("canvas").getContext("2d");
  at.font = "11px system-ui";
  at.fillText("8,000", 4, 12);
  at.arc(60.5, 30.3, 19.7, 0, 5);
  at.stroke();
</script>"""
"""Letters, controls and lines. Another browser or library that draws them otherwise draws other
pictures."""
_COLOURS: Final = 1 << 24
_PACKAGES: Final = ROOT / "dashboard" / "node_modules"
_INTER: Final = "@fontsource-variable/inter/files/inter-latin-wght-normal.woff2"
_FACES: Final = (
    ("Test Sans", _INTER, "100 900"),
    ("Test Signs", "dejavu-fonts-ttf/ttf/DejaVuSans.ttf", "400"),
    ("Test Signs", "dejavu-fonts-ttf/ttf/DejaVuSans-Bold.ttf", "700"),
    ("Test Mono", "dejavu-fonts-ttf/ttf/DejaVuSansMono.ttf", "400"),
    ("Test Mono", "dejavu-fonts-ttf/ttf/DejaVuSansMono-Bold.ttf", "700"),
)
FONTS_LOADED: Final = "[...document.fonts].every(({ status }) => status === 'loaded')"
_SANS: Final = "'Test Sans', 'Test Signs'"
_STYLES: Final = f"""
:root {{
  --mantine-font-family: {_SANS} !important;
  --mantine-font-family-headings: {_SANS} !important;
  --mantine-font-family-monospace: 'Test Mono', 'Test Signs' !important;
}}
*, *::before, *::after {{
  animation: none !important;
  transition: none !important;
  caret-color: transparent !important;
}}
"""
_PREPARED: Final = """
(([styles, faces, sans]) => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(styles);
  document.adoptedStyleSheets = [sheet];
  for (const [name, content, weight] of faces) {
    const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
    const face = new FontFace(name, bytes, { weight });
    document.fonts.add(face);
    face.load();
  }
  // Of canvases, whose fonts no style sheet sets.
  const drawn = CanvasRenderingContext2D.prototype;
  const font = Object.getOwnPropertyDescriptor(drawn, "font");
  const set = function (value) {
    font.set.call(this, value.replace(/system-ui.*/, sans));
  };
  Object.defineProperty(drawn, "font", { ...font, set });
})
"""

Pixels = NDArray[np.uint8]
"""Red, green and blue of each pixel: (height, width, 3)."""


@contextmanager
def gallery(browser: Browser, token: str | None, at: float) -> Iterator[Page]:
    """Yield a tab whose fonts and clock are those of the pictures, signed in.

    Parameters
    ----------
    browser : Browser
    token : str or None
    at : float
        Seconds since the epoch.
    """
    context = browser.new_context(
        viewport={"width": 1_000, "height": 800},
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
        bypass_csp=True,  # for the styles
    )
    context.set_default_timeout(WAIT_MS)
    faces = [
        [name, base64.b64encode((_PACKAGES / path).read_bytes()).decode(), weight]
        for name, path, weight in _FACES
    ]
    try:
        context.add_init_script(f"{_PREPARED}({json.dumps([_STYLES, faces, _SANS])})")
        if token is not None:
            context.add_init_script(f"sessionStorage.setItem('lockstep.token', '{token}')")
        page = context.new_page()
        page.clock.set_fixed_time(at)
        yield page
    finally:
        context.close()


def taken(page: Page) -> Pixels:
    """Return the pixels of the window."""
    # Without playwright's own waits for fonts and animations, of which there are none.
    session = page.context.new_cdp_session(page)
    answer = session.send("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
    session.detach()
    with Image.open(io.BytesIO(base64.b64decode(answer["data"]))) as image:
        return np.asarray(image.convert("RGB"))


def drawn_by(browser: Browser) -> dict[str, str]:
    """Return the version of a browser, and a digest of the sample that it draws."""
    with gallery(browser, None, 0.0) as page:
        page.goto("data:text/html;charset=utf-8," + quote(_SAMPLE))
        page.wait_for_function(FONTS_LOADED)
        digest = hashlib.sha256(taken(page).tobytes()).hexdigest()
    return {"version": browser.version, "sample": digest}


def unlike(browser: Browser) -> str | None:
    """Return why a browser may draw other pixels than that of the committed pictures, if so."""
    now, then = drawn_by(browser), json.loads(DRAWN_BY.read_text())
    if now["sample"] == then["sample"] and _major(now) == _major(then):
        return None
    return (
        f"Chromium {then['version']} drew the pictures, and this is {now['version']}, which"
        f" draws {'the same' if now['sample'] == then['sample'] else 'other'} letters and lines"
    )


def _major(drawn: dict[str, str]) -> str:
    return drawn["version"].partition(".")[0]


def stored(path: Path, pixels: Pixels) -> None:
    """Write a picture with few colours."""
    packed = _packed(pixels)
    counts = np.bincount(packed.ravel(), minlength=_COLOURS)
    chosen = np.empty((0, 3), np.int64)
    for value in np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]:
        if len(chosen) == COLOURS_MAX:
            break
        colour = _channels(value)
        apart = FLAT_APART if counts[value] >= FLAT_PART * packed.size else APART
        if (abs(chosen - colour).max(axis=1) > apart).all():
            chosen = np.vstack([chosen, colour])
    image = Image.fromarray(_nearest(packed, chosen), "P")
    image.putpalette(chosen.astype(np.uint8).tobytes())
    path.parent.mkdir(exist_ok=True)
    image.save(path, optimize=True)


def difference(path: Path, pixels: Pixels) -> float:
    """Return the part of the pixels that differ from a committed picture; 1 without one."""
    if not path.is_file():
        return 1.0
    with Image.open(path) as image:
        before, palette = np.asarray(image), image.getpalette()
    if before.shape != pixels.shape[:2] or palette is None:
        return 1.0
    colours = np.array(palette, np.int64).reshape(-1, 3)[: int(before.max()) + 1]
    return float((_nearest(_packed(pixels), colours) != before).mean())


def _packed(pixels: Pixels) -> NDArray[np.int32]:
    red, green, blue = (pixels[..., channel].astype(np.int32) for channel in range(3))
    return red << 16 | green << 8 | blue


def _channels(packed: Any) -> NDArray[np.int64]:
    return np.stack([packed >> 16, packed >> 8 & 255, packed & 255], axis=-1).astype(np.int64)


def _nearest(packed: NDArray[np.int32], colours: NDArray[np.int64]) -> Pixels:
    """Return the index of the nearest colour of each pixel."""
    table = np.zeros(_COLOURS, np.uint8)
    table[packed] = 1
    values = np.flatnonzero(table)
    apart = ((_channels(values)[:, None, :] - colours[None]) ** 2).sum(axis=-1)
    table[values] = apart.argmin(axis=1)
    return table[packed]
