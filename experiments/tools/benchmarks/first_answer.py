"""How long a reader of the page waits for its first explorable: from navigation to its answer to a key."""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.binaries import GALLERY, discover
from experiments.page import write_page
from experiments.tools.benchmarks.timing import Config, Row, Timing, row
from icl_lab import machine

ANSWERS = """globalThis.answered = new Promise((tell) => requestAnimationFrame(function ask() {
  const point = document.querySelector("#layer [data-part=prompt] .handle"), place = point?.getAttribute("transform");
  point?.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true, cancelable: true }));
  const moved = point && point.getAttribute("transform") !== place;
  requestAnimationFrame(moved ? () => tell(performance.now()) : ask);
}));"""
"""Before the page's own script: a key in each frame, until a point has moved and the frame that shows it is there."""


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Chromium with a profile of its own, as Playwright's ``Browser``.

    Raises:
      LookupError: where there is none, or no Playwright.
    """
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise LookupError("Chromium is not installed (Debian: apt-get install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise LookupError("Playwright's client is not installed (make install)") from error
    off = ("gpu", "quic", "background-networking", "component-update", "sync")
    flags = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in off)]
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, headless=True, args=flags)
        yield browser
        browser.close()


def first_answer(config: Config) -> dict[str, list[Row]]:
    """The page of the committed records, opened in as many fresh tabs as there are rounds; no row without Chromium."""
    with contextlib.ExitStack() as stack:
        try:
            browser = stack.enter_context(chromium())
        except LookupError as error:
            return {f"first explorable of the page: skipped, {error}": []}
        out = Path(stack.enter_context(tempfile.TemporaryDirectory()), "page.html")
        write_page(GALLERY, GALLERY / "claims.json", out, discover())
        taken = np.array([_milliseconds(browser, out.as_uri()) for _ in range(config.rounds + 1)])
        size = out.stat().st_size / 1e6
    rows = [row("from navigation to its answer to a key", Timing(0.0, taken[1:]))]  # the first reads it from disk
    match = re.search(r"model name\s*:\s*(.*)", machine.PROCESSOR.read_text()) if machine.PROCESSOR.exists() else None
    return {f"first explorable of the page ({size:.1f} MB) on {match[1] if match else machine.vectors()}": rows}


def _milliseconds(browser: Any, address: str) -> float:
    tab = browser.new_page(viewport={"width": 1280, "height": 800})
    tab.add_init_script(ANSWERS)
    tab.goto(address)
    answered = tab.evaluate("answered")
    tab.close()
    return float(answered)
