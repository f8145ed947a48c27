"""A process of its own in which nothing can be harmed: it has its own mounts, processes and
network; what it writes anywhere is seen, and is gone with it.

    python3 -m tests.functional.boxed MODULE FUNCTION ARGUMENT…
"""

import ctypes
import importlib
import os
import stat
import subprocess
import sys
from pathlib import Path

BOX = Path("/mnt")
_UNSHARE = ("unshare", "--mount", "--net", "--ipc", "--pid", "--fork", "--mount-proc",
            "--propagation", "private")  # fmt: skip


def run(module, function, *arguments, timeout_s=600):
    """Calls the function of the module in a box; what it prints. Raises CalledProcessError."""
    argv = [*_UNSHARE, sys.executable, "-m", "tests.functional.boxed", module, function]
    done = subprocess.run(
        [*argv, *arguments], check=False, capture_output=True, text=True, timeout=timeout_s,
        cwd=Path(__file__).resolve().parents[2],
        # compiled modules would count as files that the code has written
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert not done.returncode, done.stderr[-3000:]
    return done.stdout


# of mount(2): nothing more than this mount becomes read-only
_READ_ONLY = 1 | 32 | 4096


def _mount(source, target, kind, options="", flags=0):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), str(target).encode(), kind.encode(), flags, options.encode()):
        raise OSError(ctypes.get_errno(), f"cannot mount {kind} on {target}")


class Box:
    """The file systems of this process: each top folder is the machine's own below a layer of
    ours; ``/run`` is empty, so that no daemon is reached; below ``/mnt`` it may write. No other
    top folder can be made."""

    def __init__(self):
        _mount("box", BOX, "tmpfs")
        self.layers = {}
        for top in sorted(Path("/").iterdir()):
            if top.is_symlink() or not top.is_dir() or top.name in ("proc", "sys", "dev", "mnt"):
                continue
            if top.name == "run":
                _mount("box", top, "tmpfs")
                self.layers[top] = top
                continue
            upper, work = BOX / "upper" / top.name, BOX / "work" / top.name
            upper.mkdir(parents=True)
            work.mkdir(parents=True)
            _mount("overlay", top, "overlay", f"lowerdir={top},upperdir={upper},workdir={work}")
            self.layers[top] = upper
        _mount("", "/", "", flags=_READ_ONLY)
        os.chdir(os.getcwd())
        self.known = self.written()

    def written(self):
        """Path to its size and time, of all that was made, changed or deleted since it began."""
        found = {}
        for top, upper in self.layers.items():
            for folder, _, files in os.walk(upper):
                for name in files:
                    path = os.path.join(folder, name)
                    about = os.lstat(path)
                    gone = stat.S_ISCHR(about.st_mode) and about.st_rdev == 0
                    what = "gone" if gone else (about.st_size, about.st_mtime_ns, about.st_mode)
                    found[str(top) + path.removeprefix(str(upper))] = what
        return found

    def read_if_changed(self):
        """The paths that have changed since the last call."""
        now = self.written()
        found = sorted(p for p in {*now, *self.known} if now.get(p) != self.known.get(p))
        self.known = now
        return found


def main(module, function, *arguments):
    box = Box()
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "_utils"))
    getattr(importlib.import_module(module), function)(box, *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
