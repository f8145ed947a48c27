"""Each message that troubleshooting.md and migration.md quote is the code's or Salt's."""

import ast
import functools
import importlib.util
import re
from pathlib import Path

import pytest

from tests.lab import paths
from tests.tools import api

PAGES = ("troubleshooting.md", "migration.md")
OF_SALT = "Salt on the master"
SALT = (
    "salt.utils.gitfs", "salt.loader.lazy", "salt.state", "salt.runner", "salt.minion",
)  # fmt: skip


def quoted():
    """(Heading, message) of each text in backticks in the first line of the pages' list items."""
    heading = ""
    for page in PAGES:
        for line in paths.page(page).read_text(encoding="utf-8").splitlines():
            if line.startswith("## "):
                heading = line.removeprefix("## ")
            if line.startswith("- `") and line.endswith("\\"):
                for message in re.findall(r"`([^`]+)`", line):
                    yield heading, message


MESSAGES = [message for heading, message in quoted() if heading != OF_SALT]
SALTS = [message for heading, message in quoted() if heading == OF_SALT]


@functools.cache
def literals():
    """Every text of the code and of the formula, with ``…`` for what is filled in."""
    found = set()
    for folder in ("_utils", "_modules", "_runners", "_states"):
        for path in (api.REPOSITORY / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = (part.value if isinstance(part, ast.Constant) else "…"
                             for part in node.values)  # fmt: skip
                    found.add("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    found |= {path.read_text(encoding="utf-8") for path in api.REPOSITORY.glob("formulas/**/*.sls")}
    return found


def parts(message):
    """What a message has between names and numbers, as far as it can be told apart."""
    return [part for part in message.split("…") if len(part.strip()) > 3]


def test_the_page_has_messages():
    assert len(MESSAGES) > 40
    assert len(SALTS) > 5
    assert [message for message in (*MESSAGES, *SALTS) if not parts(message)] == []


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_that_is_explained_is_one_of_the_code(message):
    assert [one for one in parts(message) if not any(one in text for text in literals())] == []


@pytest.mark.parametrize("message", SALTS)
def test_a_message_of_salts_is_in_salt(message):
    paths = [importlib.util.find_spec(name).origin for name in SALT]
    text = " ".join(Path(path).read_text(encoding="utf-8") for path in paths)
    text = re.sub(r'"\n +f?"', "", text).replace("%s", "gitfs")
    assert [one for one in parts(message) if one not in text] == []
