"""Only ``system`` replaces files, locks them, detaches processes and creates TLS contexts. Ruff
bans the functions (``banned-api`` in pyproject.toml); these tests find the calls that ruff cannot
see."""

import ast
import re

import pytest

from tests.tools import api, layers

FOLDERS = ("_utils", "_modules", "_runners", "_states", "_engines", "_grains", "_pillar", "_output")
FILES = [
    path
    for folder in FOLDERS
    for path in sorted((api.REPOSITORY / folder).rglob("*.py"))
    if layers.LIBRARY / "system" not in path.parents
]
KEYWORDS = {"start_new_session", "preexec_fn", "process_group"}
TLS, FILE = {"SSLContext", "create_default_context"}, {"rename", "replace"}
# to parse a file takes a hundred times as long as to search it
SUSPICIOUS = re.compile("|".join(KEYWORDS | TLS | {rf"\b{name}\b" for name in FILE}))


def banned(code):
    """The lines with a call that detaches a process or creates a TLS context, or with Path.rename
    or Path.replace."""
    if not SUSPICIOUS.search(code):
        return
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        keywords = {keyword.arg for keyword in node.keywords}
        if keywords & KEYWORDS:
            yield node.lineno
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method in TLS or (method in FILE and len(node.args) == 1 and not keywords):
            yield node.lineno


def test_no_other_file_does_it_by_itself():
    found = [
        f"{path.relative_to(api.REPOSITORY)}:{line}"
        for path in FILES
        for line in banned(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("code, is_banned", [
    ("subprocess.Popen(argv, start_new_session=True)", True),
    ("ssl.SSLContext(purpose)", True), ("ssl.create_default_context()", True),
    ("path.rename(other)", True), ("Path(a).replace(b)", True), ("text.replace('a', 'b')", False),
    ("dataclasses.replace(one, a=1)", False), ("replace(one, a=1)", False),
    ("dom.rename(name, 0)", False), ("atomic_file.rename(a, b)", False),
])  # fmt: skip
def test_what_is_banned_is_found(code, is_banned):
    assert bool([*banned(code)]) is is_banned
