"""The changes of ``make mutation``: each mutant is a program that runs and behaves differently."""

import ast

import pytest

from tests.tools import mutation

MODULE = "names"


def mutants(monkeypatch, text):
    """{what is changed: the function of the text that is changed so}."""
    monkeypatch.setattr(mutation, "source", lambda _module: text)
    monkeypatch.setattr(mutation, "path_of", mutation.Path)
    found = {}
    for one in mutation.mutants(MODULE):
        space = {}
        exec(compile(ast.parse(text), "plain", "exec"), space)
        space["f"].__code__ = one.code()
        found[one.text] = space["f"]
    return found


@pytest.mark.parametrize("word", ["and", "or"])
def test_an_operand_that_is_left_out_leaves_what_the_others_say(monkeypatch, word):
    """Of two the one that was left was no program: it seemed that a test had noticed."""
    found = mutants(monkeypatch, f"def f(a, b):\n    return a {word} b\n")
    for given in ((1, 2), (0, 2), (1, 0), ("", 0), ([], None)):
        assert found["operand 1 left out"](*given) == given[1]
        assert found["operand 2 left out"](*given) == given[0]
    three = mutants(monkeypatch, f"def f(a, b, c):\n    return a {word} b {word} c\n")
    for given in ((1, 2, 3), (0, 2, 3), (1, 0, 3), (1, 2, 0)):
        assert three["operand 2 left out"](*given) == eval(
            f"x {word} y", None, {"x": given[0], "y": given[2]}
        )


def test_a_not_that_is_left_out_is_the_truth_of_anything(monkeypatch):
    """Of a list it was a TypeError, which any test notices."""
    found = mutants(monkeypatch, "def f(a):\n    return not a\n")
    assert [found["not left out"](given) for given in ([], [0], "", None, 7)] == [
        False, True, False, False, True,
    ]  # fmt: skip


def test_what_python_does_not_compile_is_no_mutant_that_dies(monkeypatch):
    def broken(tree):
        tree.body[0].body[0].value = ast.BoolOp(ast.And(), [])

    monkeypatch.setattr(mutation, "source", lambda _module: "def f():\n    return 1\n")
    one = mutation.Mutant(MODULE, "f", 2, "broken", broken)
    monkeypatch.setattr(
        mutation, "live", lambda *_asked: test_what_python_does_not_compile_is_no_mutant_that_dies
    )
    runner = mutation.Runner([], ())
    with pytest.raises(ValueError, match="BoolOp"):
        runner.killed(one, ["a test"])


@pytest.mark.parametrize("name", ["mutants.txt", "unreached.txt"])
def test_what_is_excused_is_code_that_is_there(name):
    """A rename or a move left the lists behind, and what they excused was said to live."""
    lines = (mutation.REPOSITORY / "tests/tools" / name).read_text(encoding="utf-8").splitlines()
    gone = []
    for excused in lines:
        if not excused or excused.startswith("#"):
            continue
        module, function, line = excused.split(" | ", 2)
        path = mutation.REPOSITORY / module if "/" in module else mutation.path_of(module)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        there = any(line.startswith(f"{one.strip()} | ") for one in text.splitlines())
        if not there or not all(f" {name}" in text for name in function.split(".") if name):
            gone.append(excused)
    assert gone == []
