"""The layers of the library: who may import whom (docs/explanation/architecture.md, "Layers")."""

import re
import sys

import pytest

from tests.tools import api, docs, features, layers

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


def breach(path, name):
    """Why a file may not import a name; None where it may."""
    package = layers.package(path)
    layer = layers.LAYER[package]
    top, _, rest = name.partition(".")
    if top == "saltvirt":
        if rest.endswith(".handlers"):
            return "only adapters import handlers"
        other = layers.LAYER[layers.key(rest)] if rest else layer
        return None if other in layers.MAY_IMPORT[layer] else f"{other} is above {layer}"
    if package == "errors":
        return None if name in ("__future__", "salt.exceptions") else "errors stands alone"
    if top in sys.stdlib_module_names:
        return "not pure" if layer == layers.PURE and top in IMPURE else None
    return None if top in layers.FOREIGN[layer] else f"foreign to {layer}"


def test_imports_stay_in_their_layer():
    found = [
        f"{name_of(path)} imports {name}: {breach(path, name)}"
        for path in IN_LAYERS
        if path not in HANDLERS
        for name in layers.imports(path)
        if breach(path, name)
    ]
    assert found == []


DUNDERS = {"__salt__", "__opts__", "__grains__", "__pillar__", "__context__", "__jid_event__"}


def test_the_library_knows_no_dunders_of_salt():
    found = {name_of(path): layers.parsed(path)[1] & DUNDERS for path in FILES}
    assert {name: dunders for name, dunders in found.items() if dunders} == {}


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


def test_no_package_imports_itself_through_others():
    modules = {layers.module(path): path for path in FILES if path not in HANDLERS}
    graph = {}
    for name, path in modules.items():
        others = {layers.part(other) for other in layers.imported(path, modules)}
        graph.setdefault(layers.part(name), set()).update(others - {layers.part(name)})
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
    "docs/index.md",
)


# folders of features that are not installed
REMOVED = tuple(
    f"{package}/"
    for feature in features.FEATURES.values()
    for package in feature.packages
    if not (layers.LIBRARY / package).is_dir()
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
        if not ("NAME" in name or name.startswith(REMOVED))
        and not any(_exists(root, name.rstrip("/")) for root in roots)
    }
    assert missing == set()
