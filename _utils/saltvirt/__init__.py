"""The library of Salt Virt: everything that is not Salt plumbing.

Salt syncs this package into ``extmods/utils`` of masters and minions. A process
that lives long can hold an old copy of it in memory while ``sync_all`` has put a
new one beside it. Every adapter therefore begins with::

    import saltvirt
    saltvirt = saltvirt.fresh()

which imports the package anew when the files have changed, and every entry into
libvirt or the cloud calls :func:`check`, which refuses to run half old, half new.
Salt loads every adapter on every minion that has them, and few minions are
hypervisors: an adapter imports the rest of the library in :func:`later`.

What `make publish` serves is this package in one archive: ``packed.py`` then runs this file, and
has left ``PACKED`` here, the archive's path and the digest of what was unpacked.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import pkgutil
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__version__ = "0.1.0"

_HOME = os.path.dirname(os.path.realpath(__file__))


def _sources(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """(path, stat) of each source file below the folder. Every job pays for it: no pathlib."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                with contextlib.suppress(FileNotFoundError):  # a sync is replacing it just now
                    yield entry.path, entry.stat()
            elif entry.name != "__pycache__" and entry.is_dir():
                with contextlib.suppress(FileNotFoundError):
                    yield from _sources(entry.path)


def fingerprint() -> frozenset[tuple[str, int, int]]:
    """What the package's files look like on disk.

    Returns a frozenset of (path, mtime_ns, size), one for each source file.
    """
    return frozenset((path, s.st_mtime_ns, s.st_size) for path, s in _sources(_HOME))


_PACKED: tuple[str, str] | None = globals().get("PACKED")
_LOADED = frozenset() if _PACKED else fingerprint()


def stale() -> bool:
    """True when the files on disk are not the ones this process imported."""
    if _PACKED:
        from saltvirt import bundle  # noqa: PLC0415 - who has it unpacked pays for it, nobody else

        return bundle.digest(_PACKED[0]) != _PACKED[1]
    return fingerprint() != _LOADED


def fresh() -> ModuleType:
    """The package as it is on disk: this one, or imported anew when it is stale."""
    if not stale():
        return sys.modules[__name__]
    for name in [n for n in sys.modules if n == __name__ or n.startswith(__name__ + ".")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    return importlib.import_module(__name__)


class Later(ModuleType):
    """A module that is imported at the first use of one of its names, with its group."""

    def __init__(self, name: str, group: dict[str, Later]) -> None:
        super().__init__(name)
        vars(self).update(_group=group, _module=None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # whoever inspects an adapter does not use the library
            raise AttributeError(f"module {self.__name__!r} is not imported yet: no {name!r}")
        return getattr(self._imported(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._imported(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._imported(), name)

    def _imported(self) -> ModuleType:
        """The module. All of its group come at once, so that an operation that takes an hour does
        not begin with the files before a sync and end with those after it."""
        if self._module is None:
            check()
            for name, member in self._group.items():
                vars(member)["_module"] = importlib.import_module(name)
        module: ModuleType = self._module
        return module


_switching = threading.RLock()
# by the name of an adapter. Salt executes an adapter again in the same module: a group that the
# module itself kept would have what an older library had.
_groups: dict[str, dict[str, Later]] = {}


@contextlib.contextmanager
def later() -> Iterator[None]:
    """Within it ``from saltvirt.PACKAGE import MODULE`` imports nothing yet.

    For the top of an adapter: its functions use the modules as ever, and the first use of any of
    them imports all that the adapter's blocks name: `make publish` makes one file of several
    adapters. Only modules can be named, not what is in them. A module that the process holds
    already is taken as it is.
    """
    real, thread, is_within = builtins.__import__, threading.get_ident(), True

    def take(*args: Any, **kwargs: Any) -> Any:
        # another copy of the library, in another thread, may put this one back when it is over
        is_mine = is_within and threading.get_ident() == thread and not kwargs
        if not is_mine or args[0].split(".", maxsplit=1)[0] != __name__:
            return real(*args, **kwargs)
        package, adapter, _, names, _ = args
        return SimpleNamespace(**{name: _later(f"{package}.{name}", adapter) for name in names})

    with _switching:
        builtins.__import__ = take
        try:
            yield
        finally:
            builtins.__import__, is_within = real, False


def _later(name: str, adapter: dict[str, Any]) -> ModuleType:
    """A module that the process holds, or one that is imported with the adapter's others."""
    group = _groups.setdefault(adapter["__name__"], {})
    return sys.modules.get(name) or group.setdefault(name, Later(name, group))


def preload() -> None:
    """Imports the whole library, when libvirt's binding is there.

    For a process that forks one for each job, as a minion does: what it holds its jobs need not
    import, which is most of the time that a small one takes. Without the binding nothing is held,
    so that a job finds it as soon as it is installed; what another missing package needs is left
    to the job that wants it.
    """
    try:
        importlib.import_module("libvirt")
    except ImportError:
        return
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)


def check() -> None:
    """Refuse to go on with an old library in memory.

    Raises saltvirt.errors.StaleLibrary, which says what to do.
    """
    if stale():
        from saltvirt.errors import StaleLibrary  # noqa: PLC0415 - a cycle otherwise

        raise StaleLibrary(
            "saltvirt was updated while this process ran: run saltutil.refresh_modules, "
            "or restart this salt-master or salt-minion, and try again"
        )
