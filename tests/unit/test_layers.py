"""The layers of the library: who may import whom (docs/explanation/architecture.md, "Layers")."""

import ast
import re
import sys

import pytest

from tests.tools import api, docs, layers

# what would give the pure layer a clock, files or processes
IMPURE = {"os", "time", "subprocess", "socket", "pathlib", "tempfile", "shutil", "random"}
FILES = sorted(layers.LIBRARY.rglob("*.py"))
# the package itself, and what finds it, belong to no layer
STARTERS = ("bundle.py", "extension/__init__.py")
NO_LAYER = {layers.LIBRARY / name for name in ("__init__.py", "version.py", *STARTERS)}
NO_LAYER |= {layers.LIBRARY / name / "__init__.py" for name in layers.FEATURES}
IN_LAYERS = [path for path in FILES if path not in NO_LAYER]
# adapters within the library
HANDLERS = {path for path in IN_LAYERS if path.name == layers.HANDLERS}


@pytest.mark.parametrize("name", STARTERS)
def test_what_finds_the_library_stands_alone(name):
    assert not [one for one in layers.imports(layers.LIBRARY / name) if "saltvirt" in one]


def name_of(path):
    return str(path.relative_to(layers.LIBRARY))


@pytest.mark.parametrize("path", [p for p in IN_LAYERS if p not in HANDLERS], ids=name_of)
def test_imports_stay_in_their_layer(path):
    package = layers.package(path)
    layer = layers.LAYER[package]
    for name in layers.imports(path):
        top, _, rest = name.partition(".")
        if top == "saltvirt":
            if rest:
                other = layers.LAYER[layers.key(rest)]
                assert other in layers.MAY_IMPORT[layer], f"{path} imports {name}"
        elif package == "errors":
            assert name in ("__future__", "salt.exceptions")
        elif top in sys.stdlib_module_names:
            assert layer != layers.PURE or top not in IMPURE, f"{path}: {name} is not pure"
        else:
            assert top in layers.FOREIGN[layer], f"{path} imports {name}"


@pytest.mark.parametrize("path", [p for p in IN_LAYERS if p not in HANDLERS], ids=name_of)
def test_only_adapters_import_handlers(path):
    imported = [name for name in layers.imports(path) if name.startswith("saltvirt.")]
    assert not [name for name in imported if name.endswith(".handlers")]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_the_library_knows_no_dunders_of_salt(path):
    names = {n.id for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Name)}
    dunders = {"__salt__", "__opts__", "__grains__", "__pillar__", "__context__", "__jid_event__"}
    assert not names & dunders


# with their adapters and their page of docs nothing is left of these packages, and of files of
# others whose names begin so
ALONE = (
    ("ha",),
    ("backup", "xml/domain/backup"),
    ("metrics",),
    ("console", "web"),
)


def is_of(name, alone):
    """Is a module, with slashes, one of them?"""
    packages = [one for one in alone if "/" not in one]
    files = tuple(one for one in alone if "/" in one)
    return name.split("/")[0] in packages or name.startswith(files)


@pytest.mark.parametrize("alone", ALONE, ids=lambda alone: alone[0])
def test_what_can_be_taken_away_is_imported_by_nothing_else(alone):
    others = [path for path in IN_LAYERS if not is_of(name_of(path), alone)]
    found = [
        f"{path} imports {one}"
        for path in others
        for one in layers.imports(path)
        if one.startswith("saltvirt.")
        and is_of(one.removeprefix("saltvirt.").replace(".", "/"), alone)
    ]
    assert found == []


def test_no_module_imports_itself_through_others():
    modules = {layers.module(path): path for path in FILES}
    graph = {name: layers.imported(path, modules) - {name} for name, path in modules.items()}
    assert layers.cycles(graph) == []


def test_every_package_that_is_named_is_there():
    there = {layers.package(path) for path in IN_LAYERS}
    assert set(layers.LAYER) == there


def test_the_picture_is_drawn_from_the_code():
    drawn = (docs.DOCS / "explanation/layers.svg").read_text(encoding="utf-8")
    assert drawn == layers.picture(), "make docs"


def test_the_page_names_every_package_of_the_library():
    text = (docs.DOCS / "explanation/architecture.md").read_text(encoding="utf-8")
    missing = [name for name in layers.LAYER if f"`{name.replace('.', '/')}" not in text]
    below = [
        one
        for of in layers.LAYER
        for one in (layers.LIBRARY / of.replace(".", "/")).glob("*/__init__.py")
    ]
    missing += [
        f"{path.parent.parent.name}/{path.parent.name}"
        for path in below
        if f"`{path.parent.parent.name}/{path.parent.name}`" not in text
    ]
    assert missing == []


# `host/domain`, `placement/filters/NAME.py`, `_runners/virt*.py`: what a newcomer is sent to
NAMED = re.compile(r"`((?:[a-z_]+/)+[A-Za-z_*.-]*|_[a-z]+|[A-Za-z_]+\.(?:py|md|json|yaml))`")
SENT_BY = (
    "CONTRIBUTING.md",
    "docs/explanation/architecture.md",
    "docs/reference/glossary.md",
    "docs/where.md",
)


def _exists(root, name):
    return any(True for _ in root.glob(name)) or (root / f"{name}.py").exists()


@pytest.mark.parametrize("page", SENT_BY)
def test_a_file_that_newcomers_are_sent_to_is_there(page):
    text = (api.REPOSITORY / page).read_text(encoding="utf-8")
    roots = [api.REPOSITORY, layers.LIBRARY, *layers.LIBRARY.rglob("firewall")]
    roots += [layers.LIBRARY / "host/migration"]
    missing = {
        name
        for name in NAMED.findall(text)
        if "NAME" not in name and not any(_exists(root, name.rstrip("/")) for root in roots)
    }
    assert missing == set()
