"""Optional features: packages that can be removed with their adapters.

The core imports nothing of a feature. What it asks features is declared in ``host/hooks.py`` for
hypervisors and in ``operations/cluster/hooks.py`` for masters.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from types import ModuleType


def installed(modules: Iterable[str]) -> Iterator[ModuleType]:
    """Import and yield those modules of the library that exist. Raises ImportError if the imports
    of a module fail."""
    library = __name__.partition(".")[0]
    for name in modules:
        module = f"{library}.{name}"
        try:
            yield importlib.import_module(module)
        except ModuleNotFoundError as exc:
            if not f"{module}.".startswith(f"{exc.name}."):
                raise
