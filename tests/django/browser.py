"""A real browser: Chromium without a window, driven by its own driver in the protocol of WebDriver.

The driver is a program that speaks JSON over HTTP on a port of this machine (https://www.w3.org/TR/webdriver2),
so that the few commands which tests need take no library.
"""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""What the specification calls a reference to an element."""

_PATIENCE = 20.0
"""Seconds for a page to become what is waited for."""

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """Where the browser is; `None`: it or its driver is missing."""
    if shutil.which("chromedriver") is None:
        return None
    return next(filter(None, map(shutil.which, _CHROMIUM)), None)


needs_chromium = pytest.mark.skipif(
    chromium() is None, reason="Chromium is not installed: apt-get install chromium chromium-driver"
)


class Browser:
    """One window."""

    def __init__(self, port: int, binary: str, profile: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)
        arguments = ["--headless=new", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # which the superuser of a container cannot have
        options = {"binary": binary, "args": arguments}
        logged = {"goog:loggingPrefs": {"browser": "ALL"}}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, **logged}
        self._session = ""
        started = self._call("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/{started['sessionId']}"

    def _call(self, method: str, path: str, given: object = None) -> Any:
        body = None if method in ("GET", "DELETE") else json.dumps(given or {})
        self._connection.request(
            method, f"/session{self._session}{path}", body, {"Content-Type": "application/json"}
        )
        response = self._connection.getresponse()
        value = json.loads(response.read())["value"]
        if response.status >= 400:
            raise AssertionError(f"{value['error']}: {value['message'].splitlines()[0]}")
        return value

    def close(self) -> None:
        with contextlib.suppress(AssertionError):
            self._call("DELETE", "")
        self._connection.close()

    # --- what people do

    def open(self, address: str) -> None:
        self._call("POST", "/url", {"url": address})

    def type(self, css: str, text: str) -> None:
        element = self._find(css)
        self._call("POST", f"/element/{element}/clear")
        self._call("POST", f"/element/{element}/value", {"text": text})

    def click(self, css: str) -> None:
        self._call("POST", f"/element/{self._find(css)}/click")

    def follow(self, css: str) -> None:
        """Click on what leads to another page, and wait until it is there."""
        self.run("document.documentElement.dataset.left = 'yes'")
        self.click(css)
        self.wait("return !document.documentElement.dataset.left && document.readyState == 'complete'")

    def _find(self, css: str) -> str:
        found = self._call("POST", "/element", {"using": "css selector", "value": css})
        return str(found[_ELEMENT])

    # --- what there is to see

    def run(self, script: str) -> Any:
        return self._call("POST", "/execute/sync", {"script": script, "args": []})

    def wait(self, script: str) -> None:
        """Until the script returns something true."""
        end = time.monotonic() + _PATIENCE
        while True:
            with contextlib.suppress(AssertionError):  # the page may be on its way out
                if self.run(script):
                    return
            assert time.monotonic() < end, f"it has not become true: {script}"
            time.sleep(0.02)

    @property
    def text(self) -> str:
        """What can be read on the page."""
        return " ".join(str(self.run("return document.body.innerText")).split())

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        found = self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return int(found)

    def complaints(self) -> list[str]:
        """Errors of scripts, and resources that could not be loaded."""
        found = self._call("POST", "/se/log", {"type": "browser"})
        severe = [one["message"] for one in found if one["level"] == "SEVERE"]
        return [message for message in severe if "/favicon.ico " not in message]  # a browser's own wish

    def resize(self, width: int, height: int = 900) -> None:
        """The size of what is seen, which may be narrower than a window can be."""
        self._command(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def theme(self, name: str) -> None:
        """Whether the system prefers "light" or "dark"."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self._command("Emulation.setEmulatedMedia", {"features": features})

    def _command(self, name: str, given: dict[str, Any]) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": name, "params": given})

    def screenshot(self, file: Path) -> None:
        """The whole page, also below the window."""
        shot = self._command("Page.captureScreenshot", {"captureBeyondViewport": True})
        file.write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def browser() -> Generator[Browser]:
    """A browser with a profile of its own."""
    binary = chromium()
    assert binary is not None
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as driver,
    ):
        assert driver.stdout is not None
        try:
            with contextlib.closing(Browser(_port(driver.stdout), binary, profile)) as window:
                yield window
        finally:
            driver.terminate()


def _port(lines: Iterator[str]) -> int:
    """The driver says on which it listens."""
    for line in lines:
        if "started successfully on port" in line:
            return int(line.rstrip(".\n").split()[-1])
    raise AssertionError("chromedriver did not start")
