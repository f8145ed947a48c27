"""make demo as a whole: two of them side by side have their own clouds and pages."""

import re
import subprocess
import sys

import pytest

from tests.lab import page, paths
from tests.lab.cloud import Cloud

pytestmark = [pytest.mark.lab, pytest.mark.slow]
NAMES = ("demo-first", "demo-second")


@pytest.fixture
def demos():
    yield [
        subprocess.Popen(
            [sys.executable, "-m", "tests.tutorial.demo", "--name", name],
            cwd=paths.REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )
        for name in NAMES
    ]  # fmt: skip
    for name in NAMES:
        Cloud(name).down()


def test_two_demos_run_side_by_side(demos):
    texts = [demo.communicate(timeout=3600)[0] for demo in demos]
    assert [demo.returncode for demo in demos] == [0, 0], texts
    urls = [re.search(r"(https://127\.0\.0\.1:\d+)/page", text)[1] for text in texts]
    assert len(set(urls)) == 2
    for url, text, name in zip(urls, texts, NAMES, strict=True):
        assert page.answers(url)
        assert "db1 to vault" in text
        assert f"make demo-down NAME={name}" in text
