"""How heavy is the page of `view` on long texts, 270 heads: size, first paint, opening a head, hovering.

At 1,024 tokens, with the weights of one layer in focus, and at 8,000 (the figures that begin with long_). The
data are made up by the same code as in the tests; nothing in them repeats, so that a real page is smaller.
Frames are those drawn while the pointer moves over the text; the longest is told as well, but on a busy
machine it says more about the machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.verbs.chromium import Browser
from tests.verbs.made_view import made_view

from headwise.verbs.view.render_page import write_page

TOKENS, LONG_TOKENS = 1024, 8000
LAYERS = 30
FOCUS_LAYER = 17
HEADS, KV_HEADS = 9, 3
LIMITS = {
    "megabytes": 10.0,
    "first_paint_ms": 2000.0,
    "open_head_ms": 200.0,
    "frame_99th_ms": 33.4,
    "long_megabytes": 25.0,
    "long_first_paint_ms": 2000.0,
    "long_open_head_ms": 200.0,
    "long_frame_99th_ms": 33.4,
}

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
    sizes = {"layers": LAYERS, "num_heads": HEADS, "num_kv_heads": KV_HEADS}
    with tempfile.TemporaryDirectory() as folder:
        short, long = Path(folder) / "short.html", Path(folder) / "long.html"
        write_page(made_view(TOKENS, focus_layer=FOCUS_LAYER, **sizes), short)
        write_page(made_view(LONG_TOKENS, **sizes), long)
        browser = Browser(Path(folder) / "profile")
        try:
            figures = figures_of(short, browser)
            return figures | {f"long_{name}": figure for name, figure in figures_of(long, browser).items()}
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
