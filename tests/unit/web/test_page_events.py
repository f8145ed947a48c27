"""Events for pages."""

import json
import re

from saltvirt.web import page_events
from tests.lab import paths

STORE = paths.REPOSITORY / "formulas/virt/page/files/store.js"


def test_the_page_knows_the_same_verbs_that_change_nothing():
    """A page without the engine reads the events itself."""
    text = STORE.read_text(encoding="utf-8")
    (names,) = re.findall(r"const READING = new Set\((\[.*?\])\);", text, re.DOTALL)
    assert set(json.loads(names)) == page_events.READ_ONLY
