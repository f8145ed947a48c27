"""Names in docstrings, messages and tables exist: commands, settings, files, classes, states."""

import ast
import re

import pytest

from saltvirt import settings
from saltvirt.answers import calls
from saltvirt.operations import repair
from saltvirt.placement import policy as placement
from tests.functional.docs.test_manuals import CODE, COMMAND, PAGES, SETTINGS, functions, literal
from tests.tools import api, docs

LIBRARY = api.REPOSITORY / "_utils/saltvirt"
STATES = {f"virt.{state.name}" for state in api.ours("states.virt")}
CALLS = {f"virt.{name}" for names in calls.HANDLER_MODULES.values() for name in names}
KEYS = {*settings.KEYS, *(f"placement:{key}" for key in (*placement.SETTINGS, "weights"))}
# Salt's own state function that seed_cmd names
SEED_COMMANDS = {"seed.cloud_init"}


def texts(path):
    """(Line, text) of each literal of a file, with ``*`` for what is filled in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in joined for part in ast.walk(node) if part is not node}
    for node in ast.walk(tree):
        text = literal(node) if id(node) not in parts else None
        if text:
            yield node.lineno, text


TEXTS = [
    (f"{path.relative_to(api.REPOSITORY)}:{line}", text)
    for path in CODE
    for line, text in texts(path)
]


def test_a_command_that_the_code_names_exists_with_its_arguments():
    wrong = []
    for where, text in TEXTS:
        for runner, function, rest in COMMAND.findall(text):
            known = functions(bool(runner))
            if function not in known:
                wrong.append(f"{where}: {function}")
            elif known[function] is not None:
                words = re.findall(r"(?:^| )([a-z_]+)=", re.split(r"[,;)#\n]", rest)[0])
                wrong += [f"{where}: {function} {w}=" for w in words if w not in known[function]]
    assert wrong == []


def test_a_function_that_the_code_names_exists():
    known = {*functions(True), *functions(False), *STATES, *CALLS, *SEED_COMMANDS}
    named = re.compile(r"(?<![\w/.-])((?:virt|seed)\.[a-z_]+)(?!\w*[.(*])\b")
    wrong = [
        f"{where}: {name}"
        for where, text in TEXTS
        for name in named.findall(text)
        if name not in known and name.removesuffix("_") == name
    ]
    assert wrong == []


def test_a_setting_that_the_code_names_is_known():
    wrong = []
    for where, text in TEXTS:
        for key in re.findall(r"(?<![\w/:*])virt:([a-z_]+(?::[a-z_0-9]+)*)", text):
            begins = (known.startswith(key) or key.startswith(f"{known}:") for known in KEYS)
            if key not in KEYS and not any(begins):
                wrong.append(f"{where}: virt:{key}")
    assert wrong == []


def test_a_setting_of_the_formula_that_a_page_names_exists():
    wrong = []
    for page in PAGES:
        for key in re.findall(r"`libvirt:([a-z_]+(?::[a-z_]+)*)", page.read_text(encoding="utf-8")):
            path = tuple(key.split(":"))
            if not any(s[: len(path)] == path or path[: len(s)] == s for s in SETTINGS):
                wrong.append(f"{page.name}: libvirt:{key}")
    assert wrong == []


def test_a_state_of_the_formulas_that_a_page_applies_exists():
    folder = api.REPOSITORY / "formulas"
    known = {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".init")
        for path in folder.rglob("*.sls")
    }
    named = {
        name
        for page in PAGES
        for name in re.findall(
            r"state\.(?:apply|orchestrate) ((?:lib)?virt(?:\.[a-z_]+)*)",
            page.read_text(encoding="utf-8"),
        )
    }
    assert {"libvirt.keys", "virt.page", "virt.orch.deploy"} <= named <= known


def test_the_glossary_names_files_and_classes_that_exist():
    classes = {
        node.name
        for path in CODE
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    text = (docs.DOCS / "reference/glossary.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| **")]
    named = [word for row in rows if len(row) > 7 for word in re.findall(r"`([^`]+)`", row[6])]
    assert len(named) > 60
    missing = [
        word
        for word in named
        if word not in classes
        and not (LIBRARY / word).exists()
        and not (api.REPOSITORY / word).exists()
        and not word.startswith("account.")
        and word != "…"
    ]
    assert missing == []


def test_the_docstring_of_repair_lists_every_code():
    [function] = [one for one in api.ours("runners.virt") if one.name == "repair"]
    assert [code for code in repair.CODES if f"``{code}``" not in function.docstring] == []


@pytest.mark.parametrize("name", docs.references())
def test_a_table_of_a_reference_is_whole(name):
    """A text between two parameters would end the table, and show the rest of it as text."""
    text = re.sub(r"```.*?```", "", docs.references()[name], flags=re.DOTALL)
    lines = ["", *text.splitlines(), ""]
    begins = [
        (line, lines[number + 1])
        for number, line in enumerate(lines)
        if line.startswith("|") and not lines[number - 1].startswith("|")
    ]
    assert [line for line, below in begins if not re.fullmatch(r"\|[-| :]+\|", below)] == []


@pytest.mark.parametrize("name", docs.references())
def test_a_reference_has_no_markup_of_the_docstrings(name):
    text = re.sub(r"```.*?```", "", docs.references()[name], flags=re.DOTALL)
    assert re.findall(r"``[^`\n]+``|:(?:param|return|raises|func)[ :`]", text) == []


def test_the_examples_of_contributing_are_code_of_the_library():
    text = (api.REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    lines = {line.strip() for path in CODE for line in path.read_text("utf-8").splitlines()}
    assert len(blocks) > 1
    assert [
        line for block in blocks for line in block.splitlines() if line.strip() not in lines
    ] == []
