"""The recipe of a lab: a Debian release and a Salt version."""

from dataclasses import dataclass

from tests.lab.sh import LabError

SUITES = {"12": "bookworm", "13": "trixie"}
SALTS = {"3008": "3008.3", "3007": "3007.14", "3006": "3006.28"}


@dataclass(frozen=True)
class Recipe:
    """One pair of the matrix. debian: "12" or "13"; salt: "3006", "3007" or "3008"."""

    debian: str = "12"
    salt: str = "3008"

    def __post_init__(self):
        if self.debian not in SUITES:
            raise LabError(f"Debian {self.debian} is not one of {', '.join(SUITES)}")
        if self.salt not in SALTS:
            raise LabError(f"Salt {self.salt} is not one of {', '.join(SALTS)}")

    @property
    def other(self):
        """The same with Debian's other release."""
        (debian,) = set(SUITES) - {self.debian}
        return Recipe(debian, self.salt)

    @property
    def suite(self):
        """Debian's code name of the release."""
        return SUITES[self.debian]

    @property
    def salt_version(self):
        """The exact version of Salt."""
        return SALTS[self.salt]
