"""A headless Chromium that opens pages from file URLs and reports pixels, the console and the network."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

CHROMIUM = Path("/usr/bin/chromium")
CHROMEDRIVER = Path("/usr/bin/chromedriver")
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
)
PATIENCE_SECONDS = 10
# Runs before anything of the page: whatever a token might smuggle in is caught here.
WITNESS = "window.ran = []; window.alert = (words) => window.ran.push(String(words));"


class Browser:
    """One Chromium, used for one page after another."""

    def __init__(self, profile: Path) -> None:
        for program in (CHROMIUM, CHROMEDRIVER):
            if not program.exists():
                pytest.fail(f"{program} is missing; install the Debian packages chromium and chromium-driver")
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(CHROMEDRIVER)))
        self.command("Page.addScriptToEvaluateOnNewDocument", source=WITNESS)

    def command(self, name: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, arguments)

    def open(self, page: Path, *, fragment: str = "", width: int = 1440, dark: bool = False) -> None:
        """Open a page and wait until its first head is drawn; logs start anew."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.driver.get("about:blank")
        for log in ("browser", "performance"):
            self.driver.get_log(log)
        self.driver.get(page.as_uri() + fragment)
        self.until(lambda: self.run("return Boolean(document.documentElement.dataset.drawn)"))
        self.settle()

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until `condition` is true, and return its value."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not (value := condition()):
            if time.monotonic() > end:
                pytest.fail(f"the page did not get there within {PATIENCE_SECONDS} s")
            time.sleep(0.02)
        return value

    def settle(self) -> None:
        """Let the page draw what was asked for: two frames, and blocks that were being unpacked."""
        frames = (
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()));"
        )
        for _ in range(3):
            self.driver.execute_async_script(frames)

    def press(self, *keys: str) -> None:
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()
            self.settle()

    def point_at(self, selector: str) -> None:
        ActionChains(self.driver, duration=0).move_to_element(self.find(selector)).perform()
        self.settle()

    def click(self, selector: str) -> None:
        self.find(selector).click()
        self.settle()

    def find(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def texts(self, selector: str) -> list[str]:
        script = "return Array.from(document.querySelectorAll(arguments[0]), (one) => one.textContent)"
        return self.run(script, selector)

    def box(self, selector: str) -> dict[str, float]:
        """Return left, top, width and height in page coordinates."""
        script = """
            const box = document.querySelector(arguments[0]).getBoundingClientRect();
            const {width, height} = box;
            return {left: box.left + scrollX, top: box.top + scrollY, width, height};"""
        return self.run(script, selector)

    def screenshot(self) -> Image.Image:
        """Return the whole page as it looks."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested(self) -> list[str]:
        """Return the addresses asked for since the page was opened."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]

    def close(self) -> None:
        self.driver.quit()
