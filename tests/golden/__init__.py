"""Compares what we make with recorded files; SALTVIRT_REGENERATE=1 records them."""

import os
from pathlib import Path

HOME = Path(__file__).parent


def read(name):
    """A recorded file's text."""
    return (HOME / name).read_text(encoding="utf-8")


def same(name, text):
    """Asserts that a text is the recorded one."""
    path = HOME / name
    if os.environ.get("SALTVIRT_REGENERATE"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{name} is not recorded: run with SALTVIRT_REGENERATE=1"
    assert text == path.read_text(encoding="utf-8")
