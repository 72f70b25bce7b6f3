"""The browser of the tests."""

import shutil

import pytest


def chromium() -> str:
    """Return the path of Chromium. Its headless shell needs half the CPU time."""
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is missing: install the package chromium-headless-shell or chromium")
    return path
