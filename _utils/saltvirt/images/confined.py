"""Run qemu-img so that it can access only the files that it was given.

Files that an image refers to are checked before (header, chain). If a trick ever evades these
checks, qemu-img still finds no other file: it runs in its own namespaces without network, below a
root that contains the system's programs (read-only) and the given files, without other privileges
than to read and write these, and with limits of memory, time and size. This uses util-linux, which
every host has. A process that is not root runs qemu-img without confinement.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.images import storage
from saltvirt.system import paths, private_folder, tools

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

_ROOT = os.path.join(paths.RUN, "root")
_TIMEOUT_S = 120
_MEMORY = 1024**3

# $1: an empty folder. Then the files, each as r or w, its path below the new root, and its source;
# an empty word ends them, and the command follows.
_SCRIPT = """
root=$1; shift
mount -t tmpfs -o size=1m,mode=755 none "$root"
mkdir "$root/usr" "$root/dev" "$root/etc"
mount --bind -o ro /usr "$root/usr"
links=
for dir in /bin /sbin /lib /lib32 /lib64 /libx32; do
    if [ -L "$dir" ]; then links="$links $dir"
    elif [ -d "$dir" ]; then mkdir "$root$dir"; mount --bind -o ro "$dir" "$root$dir"; fi
done
[ -z "$links" ] || cp -P $links "$root/"
show() {
    [ -d "$root${2%/*}" ] || mkdir -p "$root${2%/*}"
    [ -e "$root$2" ] || : >> "$root$2"
    if [ "$1" = w ]; then mount --bind "$3" "$root$2"; else mount --bind -o ro "$3" "$root$2"; fi
}
show w /dev/null /dev/null
[ ! -e /etc/ld.so.cache ] || show r /etc/ld.so.cache /etc/ld.so.cache
while [ -n "$1" ]; do show "$1" "$2" "$3"; shift 3; done
shift
exec chroot "$root" "$@"
"""


@dataclass(frozen=True)
class Limits:
    """Limits of the tool. file_bytes: largest file that it may write; None for any."""

    timeout_s: int | None = _TIMEOUT_S
    memory_bytes: int = _MEMORY
    file_bytes: int | None = None

    def argv(self) -> list[str]:
        # otherwise each thread would reserve 64 MiB of address space for its own memory (glibc)
        arguments = ["env", "MALLOC_ARENA_MAX=1"]
        arguments += ["prlimit", "--core=0", f"--as={self.memory_bytes}"]
        if self.timeout_s:
            arguments.append(f"--cpu={self.timeout_s}")
        if self.file_bytes is not None:
            arguments.append(f"--fsize={self.file_bytes}")
        return [*arguments, "--"]


def _places(mode: str, paths: Iterable[str]) -> Iterator[str]:
    """The entries of the new root. A path keeps its name, even if it leads through a link."""
    for path in paths:
        if not os.path.isabs(path) or ".." in path.split("/"):
            raise errors.ImageError(f"{path}: use the absolute path without ..")
        real = os.path.realpath(path)
        if os.path.exists(real) and not storage.is_storage(os.stat(real).st_mode):
            raise storage.refused(path)  # the tool would wait for a FIFO
        yield from (mode, os.path.normpath(path), real)


def command(
    argv: Sequence[str],
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
    limits: Limits | None = None,
) -> list[str]:
    """The argv that runs ``argv`` confined.

    reads, writes: absolute paths, without ``..``, of existing files and block devices.
    """
    limited = [*(limits or Limits()).argv(), *argv]
    if os.geteuid() != 0:
        return limited
    files = [*_places("r", reads), *_places("w", writes)]
    namespaces = ["unshare", "--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child", "--"]
    # reading and writing the given files is the only privilege left
    privileges = [
        "setpriv",
        "--no-new-privs",
        "--inh-caps=-all",
        "--bounding-set=-all,+dac_override",
    ]
    inside = [*privileges, "--", *limited]
    root = private_folder.ensure(_ROOT)
    return [*namespaces, "sh", "-ec", _SCRIPT, "sh", root, *files, "", *inside]


def run(
    argv: Sequence[str],
    action: str,
    error: type[errors.VirtError] = errors.OperationFailed,
    *,
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
    limits: Limits | None = None,
    ok_codes: Container[int] = (0,),
) -> bytes:
    """Run a tool confined, and return its output as bytes. See :func:`command` and tools.run.

    Raises ``error``, and Unsupported if the tool is not installed.
    """
    if shutil.which(argv[0]) is None:
        raise tools.missing(argv[0])
    limits, reads = limits or Limits(), tuple(reads)
    try:
        confined = command(argv, reads, writes, limits)
    except OSError as exc:  # a path leads through what is not for anybody, as another's root
        raise error(f"cannot {action}: {exc.filename}: {exc.strerror}") from exc
    try:
        return tools.run(
            confined, action, error,
            timeout_s=limits.timeout_s, ok_codes=ok_codes, name=argv[0],
        )  # fmt: skip
    except error as exc:
        missing = next((path for path in reads if not os.path.lexists(path)), None)
        if missing is None:
            raise
        raise error(f"cannot {action}: {missing} does not exist") from exc
