"""Names in product code are terms of the domain, not filler words such as "found" or "kept"."""

import ast
import collections
import functools

from tests.lab import paths

FOLDERS = (
    "_utils", "_modules", "_runners", "_states", "_engines", "_grains", "_pillar", "_output",
)  # fmt: skip
WORDS = """
found one why there asked known place seen told words left kept said who whose whole here other
others more most much apart aside stands due over past ours mine own begun ended ends gone
went want wanted wished wish wishes ties suits rooms outlook person untold seldom again alone
together joint news quiet look looks tell says say way hand hands door doors thing what how where
when which whom of at by till until
"""
FILLER = frozenset(WORDS.split())
# "path scope name" of each exception; docs/reference/glossary.md has the terms to use instead
EXCEPTIONS = paths.REPOSITORY / "tests/tools/filler_words.txt"
# lower it when exceptions go; never raise it
LIMIT = 3


def names(node, scope=""):
    """(scope, name, whether it is a class) of each name that the node defines."""
    for child in ast.iter_child_nodes(node):
        inner = scope
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield scope, child.name, isinstance(child, ast.ClassDef)
            inner = f"{scope}.{child.name}".lstrip(".")
        elif isinstance(child, ast.arg):
            yield scope, child.arg, False
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield scope, child.id, False
        elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
            yield scope, child.attr, False
        yield from names(child, inner)


@functools.cache
def defined():
    """(path, scope, name, whether it is a class) of each name that product code defines."""
    return [
        (str(path.relative_to(paths.REPOSITORY)), *name)
        for folder in FOLDERS
        for path in sorted((paths.REPOSITORY / folder).rglob("*.py"))
        for name in names(ast.parse(path.read_text(encoding="utf-8")))
    ]


def filler():
    """ "path scope name" of each filler word that product code defines."""
    for path, scope, name, _ in defined():
        if name.strip("_").lower() in FILLER:
            yield f"{path} {scope or '-'} {name}"


def exceptions():
    lines = EXCEPTIONS.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_a_name_is_no_filler_word():
    assert sorted(set(filler()) - set(exceptions())) == []


def test_an_exception_is_still_needed():
    assert sorted(set(exceptions()) - set(filler())) == []


def test_the_exceptions_become_fewer():
    counted = collections.Counter(exceptions())
    assert [line for line, count in counted.items() if count > 1] == []
    assert len(counted) <= LIMIT


def test_no_two_classes_of_the_library_share_a_name():
    classes = collections.defaultdict(list)
    for path, _, name, is_class in defined():
        if is_class and path.startswith("_utils/"):
            classes[name].append(path)
    assert {name: places for name, places in classes.items() if len(places) > 1} == {}
