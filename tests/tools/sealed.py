"""A program whose mistakes cost this machine nothing: it writes to /tmp and a /run of its own.

What deletes is changed and run as root by `make mutation`; one change deleted /dev/null.
"""

import os
import sys

from tests.lab.paths import REPOSITORY

SEAL = """tree=$1; shift
mount -t tmpfs -o mode=755 tmpfs /run
mount --bind /tmp /tmp
mount --bind "$tree" "$tree"
for place in / /dev "$tree"; do mount -o remount,bind,ro "$place"; done
exec "$@"
"""


def argv(command):
    """The command line that runs a command so."""
    return ["unshare", "--mount", "sh", "-e", "-c", SEAL, "sealed", str(REPOSITORY), *command]


def enter(module, words):
    """Run this module again so, in place of this process. Who is not root, or is there, goes on."""
    if os.geteuid() == 0 and not os.statvfs("/").f_flag & os.ST_RDONLY:
        os.execvp("unshare", argv([sys.executable, "-m", module, *words]))
