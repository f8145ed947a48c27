"""The differences that tests/parity/README.md names: the table below its heading."""

import re
from dataclasses import dataclass

from tests.lab.paths import REPOSITORY

DOCUMENT = REPOSITORY / "tests/parity/README.md"
HEADING = "## Line by line"
CODE = re.compile("`([^`]+)`")


@dataclass(frozen=True)
class Line:
    """One line: of which functions, and which texts of compare.differences."""

    functions: tuple
    differences: tuple
    why: str

    def names(self, function, difference):
        """Is this difference of this function the one that the line is about?"""
        return any(match(function, one) for one in self.functions) and any(
            match(difference, one) for one in self.differences
        )


def match(text, pattern):
    """Does a text fit a pattern, whose * is anything?"""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


def lines(text=None):
    """The lines of the table: functions and differences are in backticks."""
    text = DOCUMENT.read_text(encoding="utf-8") if text is None else text
    found = []
    for line in text.partition(HEADING)[2].splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and CODE.match(cells[0]):
            functions, differences = (
                tuple(one.replace("\\|", "|") for one in CODE.findall(cell)) for cell in cells[:2]
            )
            found.append(Line(functions, differences, cells[2]))
    return found


def unnamed(differing, known):
    """(differences that no line names, lines that name none): differing is a list of a row's
    function and its differences."""
    used, missing = set(), []
    for row, found in differing:
        for difference in found:
            fitting = [line for line in known if line.names(row["function"], difference)]
            used.update(fitting)
            if not fitting:
                missing.append((row["id"], difference))
    return missing, [line for line in known if line not in used]
