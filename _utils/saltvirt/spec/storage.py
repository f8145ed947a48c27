"""Arguments that pools and volumes have in common: permissions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key
from saltvirt.xml.storage.permissions import Permissions


def octal_mode(value: Any, argument: str) -> str:
    """File permissions: octal text such as 0711, or a number that YAML has parsed as octal."""
    text = f"{value:o}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    if not re.fullmatch(r"0?[0-7]{3,4}", text):
        raise InvalidInput(f"{argument} {value!r} is not an octal mode such as '0711'")
    return f"{int(text, 8):04o}"


@dataclass
class PermissionsSpec(Spec):
    """``permissions``."""

    NONE_REMOVES = False

    mode: str | None = key(octal_mode, xml=Permissions.mode)
    owner: int | None = key(values.number(), xml=Permissions.owner)
    group: int | None = key(values.number(), xml=Permissions.group)
    label: str | None = key(values.text, xml=Permissions.label)

    @classmethod
    def parse(cls, value: Any, argument: str) -> PermissionsSpec:
        """Parse a dictionary, or a list of dictionaries with one key each as in Salt's
        documentation."""
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            value = {word: item for entry in value for word, item in entry.items()}
        return super().parse(value, argument)
