"""What takes long runs only when it is asked for: `make test SLOW=1`."""

import os

import pytest


def pytest_collection_modifyitems(items):
    if os.environ.get("SLOW"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: SLOW=1 runs it"))
