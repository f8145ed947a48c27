"""A command on a minimal Debian: if it succeeds there, it succeeds on a new machine. The root
contains what the README requires: Debian 12, make, git and python3. It is a mount namespace that
ends with the command. The builds of the lab (root file systems, guest images) are shared with it;
the packages and the tests' Python are not."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.lab import packages, paths, process
from tests.lab.build.debian import bootstrap
from tests.lab.sh import LabError, run

INCLUDED = "apt,ca-certificates,gpgv,make,git,python3"
HOME = Path("/var/lib/salt-virt/bare")
NEEDED = ("git", "mmdebstrap", "util-linux")
TREE = "root/salt-virt"
PYTHON_CACHE = "/var/cache/salt-virt-python"
# what of the environment goes in: the ways to the package registries, and what chooses tests
PASSED = ("PIP_", "SLOW", "LAB_KVM", "ARGS", "SALTVIRT_LAB_")
# this machine's ways to the package registries
WAYS = (
    "/etc/apt/sources.list.d", "/usr/share/keyrings", "/etc/ssl/certs", "/etc/pip.conf",
    "/etc/resolv.conf", "/etc/hosts",
)  # fmt: skip
PACE_S = 0.2
# $1: the root; then the folders that are shared with it; after `--` the command
ENTER = """
set -e
root=$1; shift
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
while [ "$1" != -- ]; do
    mkdir -p ".$1"
    mount --bind "$1" ".$1"
    shift
done
shift
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mkdir -p run/lock old
pivot_root . old
umount -l /old
rmdir /old
mount --make-rshared /
cd /root/salt-virt
exec "$@"
"""


def run_bare(command, say):
    """Run a command, such as ["make", "test"], in this tree in a bare root; its exit code."""
    packages.ensure(say, NEEDED)
    HOME.mkdir(parents=True, exist_ok=True)
    sweep()
    root = Path(tempfile.mkdtemp(prefix="root-", dir=HOME))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        process.remember(os.getpid(), root.with_suffix(".pid"))
        say("making a Debian with nothing but make, git and python3")
        prepare(root)
        say(f"{' '.join(command)} in it")
        return enter(root, command)
    finally:
        remove(root)


def prepare(root):
    """Fill the folder: Debian, the ways to the registries, the tree as it is committed."""
    root.chmod(0o755)
    bootstrap(root, "bookworm", INCLUDED)
    (root / "etc/apt/sources.list").unlink(missing_ok=True)
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    for way in map(Path, WAYS):
        if way.exists():
            # links are kept, and a link gives way to what is copied onto it
            inside = root / str(way).lstrip("/")
            inside.parent.mkdir(parents=True, exist_ok=True)
            run(["cp", "-a", "--remove-destination", "-T", way, inside])
    # nobody keeps this root: dpkg need not wait for the disk
    (root / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
    for conf in Path("/etc/apt/apt.conf.d").glob("99*"):
        shutil.copy(conf, root / "etc/apt/apt.conf.d")
    run(["git", "clone", "-q", paths.REPOSITORY, root / TREE])


def enter(root, command):
    """Run a command in the root; its exit code, when all that it started has ended."""
    cache = paths.cache()
    cache.mkdir(parents=True, exist_ok=True)
    shared = [str(cache), *local_registries()]
    argv = ["unshare", "-m", "sh", "-c", ENTER, "enter", str(root), *shared, "--", *command]
    env = {k: v for k, v in os.environ.items() if k.startswith(PASSED)}
    env |= {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root", "LANG": "C.UTF-8", "CI": "true",
        "SALTVIRT_CACHE": str(cache), "SALTVIRT_PYTHON_CACHE": PYTHON_CACHE,
    }  # fmt: skip
    with subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL) as child:
        try:
            return child.wait()
        finally:
            child.send_signal(signal.SIGTERM)


def local_registries():
    """The folders that pip takes packages from here."""
    listed = run(["python3", "-m", "pip", "config", "list"], check=False).stdout
    words = listed.replace("'", " ").replace("file://", "").split()
    folders = {word.removesuffix("/simple") for word in words if word.startswith("/")}
    return sorted(folder for folder in folders if Path(folder).is_dir())


def end_all(root, patience_s=600):
    """Wait for the labs of the root, whose reapers take them down, and kill what else is in it."""
    end = time.monotonic() + patience_s
    labs = root / str(paths.INSTANCES).lstrip("/")
    for pid in inside(root):
        if "tests.lab.reaper" not in command_of(pid):
            process.kill(pid)
    while time.monotonic() < end and (inside(root) or any(labs.glob("*/lab.json"))):
        time.sleep(PACE_S)
    for pid in inside(root):
        process.kill(pid)


def inside(root):
    """The processes that have the folder as their root."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.path.samestat(os.stat(entry / "root"), root.stat()):
                found.append(int(entry.name))
    return found


def command_of(pid):
    """The words of a process, or nothing when it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def sweep():
    """Remove the roots whose makers were killed."""
    for owner in HOME.glob("root-*.pid"):
        if process.recall(owner) is None:
            remove(owner.with_suffix(""))


def remove(root):
    """End what runs in a root; remove it, and who made it."""
    end_all(root)
    done = run(["rm", "-rf", "--one-file-system", root], check=False)
    if done.returncode:
        raise LabError(f"{root} could not be removed: {done.stderr.strip()[-300:]}")
    root.with_suffix(".pid").unlink(missing_ok=True)
