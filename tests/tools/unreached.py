"""Lines that no test reaches: grouped, and named with a reason in unreached.txt.

A line of unreached.txt is as `make coverage` prints it, ``FILE | FUNCTION | FIRST LINE``, and the
reason behind a last `` | ``. Statements that follow each other in one function are one passage.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

NAMED = Path(__file__).with_name("unreached.txt")


@dataclass(frozen=True)
class Passage:
    """Statements that no test reaches, from the line ``first`` to ``last``, and how they are
    named."""

    file: str
    function: str
    text: str
    first: int
    last: int

    @property
    def name(self):
        """What is in unreached.txt, without the reason."""
        return f"{self.file} | {self.function} | {self.text}"

    def shown(self):
        """The name, and where it is now."""
        lines = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.name} | {lines}"


def passages(file, source, statements, missing):
    """The Passages of a file. statements, missing: numbers of lines; what is missing is among
    the statements."""
    lines, owners, missing = source.splitlines(), functions(source), set(missing)
    found, before = [], None
    for number in statements:
        if number not in missing:
            before = None
            continue
        function = owners.get(number, "")
        if before == function:
            found[-1][-1] = number
        else:
            found.append([function, lines[number - 1].strip(), number, number])
        before = function
    return [Passage(file, *one) for one in found]


def functions(source):
    """Number of a line to the function that it is in, as ``Class.method``; the innermost one."""
    found = {}

    def walk(node, name):
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                inner = f"{name}.{child.name}".lstrip(".")
                # the line that defines it is run where it stands
                first = child.body[0].lineno
                found.update(dict.fromkeys(range(first, child.end_lineno + 1), inner))
            walk(child, inner)

    walk(ast.parse(source), "")
    return found


def reasons(text=None):
    """Name to reason, as unreached.txt has them."""
    lines = (NAMED.read_text(encoding="utf-8") if text is None else text).splitlines()
    return dict(line.rsplit(" | ", 1) for line in lines if line and not line.startswith("#"))


def judged(found, known):
    """(Passages that no line names, names of lines whose passage is reached or gone)."""
    there = {one.name for one in found}
    return [one for one in found if one.name not in known], [
        name for name in known if name not in there
    ]
