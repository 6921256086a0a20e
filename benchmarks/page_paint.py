"""How heavy is the page of `view` at 1,024 tokens and 270 heads: size, first paint, opening a head, hovering.

The data are made up by the same code as in the tests. Frames are those drawn while the pointer moves over the
text; the longest is told as well, but on a busy machine it says more about the machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.verbs.chromium import Browser
from tests.verbs.page_data import SENTENCE, make

from headwise.verbs.view.page_builder import build_page

TOKENS = 1024
LAYERS = 30
HEADS, KV_HEADS = 9, 3
LIMITS = {"megabytes": 10.0, "first_paint_ms": 2000.0, "open_head_ms": 200.0, "frame_99th_ms": 33.4}

# Opens heads of layers that were not unpacked before; a head is open when its name is on the document.
OPEN_HEADS = """
    const done = arguments[1], times = [], root = document.documentElement;
    const names = arguments[0];
    const next = () => {
        if (!names.length) return done(times);
        const name = names.pop(), start = performance.now();
        document.querySelector('[data-name="' + name + '"]').click();
        const look = () => {
            if (root.dataset.drawn !== name) return requestAnimationFrame(look);
            times.push(performance.now() - start);
            next();
        };
        look();
    };
    next();"""

# Points at another token in every frame and keeps the time from frame to frame.
HOVER = """
    const WARM_UP = 30;
    const done = arguments[1], frames = [], tokens = document.querySelectorAll('.token');
    let last = performance.now(), turn = 0;
    const step = (now) => {
        frames.push(now - last);
        last = now;
        if (++turn > arguments[0]) return done(frames.slice(WARM_UP));
        tokens[(turn * 37) % tokens.length].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));
        requestAnimationFrame(step);
    };
    requestAnimationFrame(step);"""


def measure() -> dict[str, float]:
    """Return the measures of LIMITS, and the median beside each worst case."""
    texts = (SENTENCE * (TOKENS // len(SENTENCE) + 1))[:TOKENS]
    # At this length `render_page` leaves out the rows' exact statistics and the full-resolution maps.
    made = make(texts, layers=[(HEADS, KV_HEADS)] * LAYERS, tile=False, row_statistics=False)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(build_page(made.header, made.blocks), encoding="utf-8")
        browser = Browser(Path(folder) / "profile")
        try:
            return figures_of(page, browser)
        finally:
            browser.close()


def figures_of(page: Path, browser: Browser) -> dict[str, float]:
    """Return the figures of one page in a running browser."""
    browser.driver.set_script_timeout(60)
    browser.open(page, fragment="#layer=0&head=0")
    paints = browser.run(
        "return performance.getEntriesByType('paint').map((one) => [one.name, one.startTime])"
    )
    opened = sorted(browser.driver.execute_async_script(OPEN_HEADS, [f"{i}.0" for i in range(1, LAYERS)]))
    hovered = sorted(browser.driver.execute_async_script(HOVER, 330))
    return {
        "megabytes": page.stat().st_size / 1e6,
        "first_paint_ms": dict(paints)["first-contentful-paint"],
        "open_head_ms": opened[-1],
        "open_head_median_ms": opened[len(opened) // 2],
        "frame_99th_ms": hovered[int(len(hovered) * 0.99)],
        "longest_frame_ms": hovered[-1],
        "median_frame_ms": hovered[len(hovered) // 2],
    }
