"""How heavy is the page of `view`? Size, first paint, opening a head, moving over tokens; JSON on stdout.

    python -m benchmarks.page_paint [--tokens 1024] [--layers 30] [--heads 9] [--kv-heads 3] [--rows] [--tile]

Run from the root of the repository: the page's data are made up by the same code as in the tests. The limits
are those the page is built for: under 10 MB, first paint under 2 s, a head open within 200 ms, and, while the
pointer moves over the text, 99 of 100 frames within 33 ms (the longest is told as well: on a busy machine it
says more about the machine).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.verbs.chromium import Browser
from tests.verbs.page_data import SENTENCE, make

from headwise.verbs.view.page_builder import build_page

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


def measure(page: Path, layers: int, browser: Browser) -> dict[str, float]:
    """Return the measures of LIMITS, and the median beside each worst case."""
    browser.driver.set_script_timeout(60)
    browser.open(page, fragment="#layer=0&head=0")
    paints = browser.run(
        "return performance.getEntriesByType('paint').map((one) => [one.name, one.startTime])"
    )
    opened = sorted(browser.driver.execute_async_script(OPEN_HEADS, [f"{i}.0" for i in range(1, layers)]))
    hovered = sorted(browser.driver.execute_async_script(HOVER, 330))
    return {
        "megabytes": page.stat().st_size / 1e6,
        "first_paint_ms": dict(paints)["first-contentful-paint"],
        "open_head_ms": opened[-1] if opened else 0.0,
        "open_head_median_ms": opened[len(opened) // 2] if opened else 0.0,
        "frame_99th_ms": hovered[int(len(hovered) * 0.99)],
        "longest_frame_ms": hovered[-1],
        "median_frame_ms": hovered[len(hovered) // 2],
    }


def main() -> int:
    """Measure one page and print what was found; 1 when a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("tokens", 1024), ("layers", 30), ("heads", 9), ("kv-heads", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rows", action="store_true", help="carry the exact statistics of every row")
    parser.add_argument("--tile", action="store_true", help="carry every weight of every layer")
    given = parser.parse_args()
    texts = (SENTENCE * (given.tokens // len(SENTENCE) + 1))[: given.tokens]
    made = make(
        texts,
        layers=[(given.heads, given.kv_heads)] * given.layers,
        tile=given.tile,
        row_statistics=given.rows,
    )
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(build_page(made.header, made.blocks), encoding="utf-8")
        browser = Browser(Path(folder) / "profile")
        try:
            found = measure(page, given.layers, browser)
            version = browser.driver.capabilities["browserVersion"]
        finally:
            browser.close()
    machine = {"machine": platform.machine(), "processors": os.cpu_count(), "chromium": version}
    result: dict[str, Any] = {"asked": vars(given), "found": found, "limits": LIMITS, "on": machine}
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return int(any(found[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    raise SystemExit(main())
