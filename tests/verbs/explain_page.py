"""Reads the page of `explain two-heads` in a browser, and types into it."""

from typing import Any

import numpy as np
from selenium.webdriver.common.keys import Keys

from .chromium import Browser


def shown(browser: Browser, name: str) -> list[list[str]]:
    script = """
        return Array.from(document.querySelectorAll(`[data-name="${arguments[0]}"] tbody tr`), (row) =>
            Array.from(row.querySelectorAll("td"), (cell) => cell.textContent));"""
    return browser.run(script, name)


def exact(browser: Browser, name: str) -> Any:
    """The numbers of a computed matrix with all their digits; hidden scores are -inf."""
    script = """
        return Array.from(document.querySelectorAll(`[data-name="${arguments[0]}"] tbody tr`), (row) =>
            Array.from(row.querySelectorAll("td"), (cell) => cell.title));"""
    rows = browser.run(script, name)
    return np.array([[-np.inf if cell.startswith("hidden") else float(cell) for cell in row] for row in rows])


def given(browser: Browser, name: str) -> Any:
    script = """
        return Array.from(document.querySelectorAll(`[data-name="${arguments[0]}"] tbody tr`), (row) =>
            Array.from(row.querySelectorAll("input"), (input) => input.valueAsNumber));"""
    return np.array(browser.run(script, name), dtype=float)


def cell(name: str, row: int, column: int) -> str:
    return f'[data-name="{name}"] tbody tr:nth-child({row + 1}) td:nth-child({column + 2})'


def put(browser: Browser, name: str, row: int, column: int, words: str) -> None:
    field = browser.find(cell(name, row, column) + " input")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(words)
    browser.settle()
