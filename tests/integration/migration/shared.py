"""A folder that all hypervisors of a lab share."""

import subprocess
import sys

FOLDER = "/srv/shared"
# a mount of the outer machine is put into the mount namespace of a machine: only the new
# mount calls can do that, and a process of one thread
MOUNT = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    found = libc.syscall(*args)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found
source, leader, target = sys.argv[1].encode(), sys.argv[2], sys.argv[3].encode()
OPEN_TREE, MOVE_MOUNT, AT_FDCWD, CLONE, EMPTY_PATH = 428, 429, -100, 1, 4
tree = call(OPEN_TREE, AT_FDCWD, source, CLONE)
namespace = os.open(f"/proc/{leader}/ns/mnt", os.O_RDONLY)
if libc.setns(namespace, 0x00020000):
    raise OSError(ctypes.get_errno(), "setns")
os.makedirs(target, exist_ok=True)
call(MOVE_MOUNT, tree, b"", AT_FDCWD, target, EMPTY_PATH)
"""


def mount(lab, folder, *hosts):
    """Shows a folder of the outer machine to these hypervisors, or to all, at FOLDER."""
    folder.chmod(0o755)
    for host in hosts or lab.hosts:
        leader = str(lab.machine(host).leader())
        subprocess.run(
            [sys.executable, "-c", MOUNT, str(folder), leader, FOLDER],
            check=True, capture_output=True, text=True,
        )  # fmt: skip


def unmount(lab):
    for host in lab.hosts:
        lab.exec(host, ["umount", "-l", FOLDER], check=False)
