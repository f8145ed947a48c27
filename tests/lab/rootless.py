"""The tests of tests/rootless, as a user who is not root.

Root runs them as nobody, with a copy of the tree, a home, and process ids of their own: whatever
they leave running ends with them.
"""

import os
import pwd
import shutil
from pathlib import Path

from tests.lab import measured, packages, paths, process, testenv
from tests.lab.sh import run

FOLDER = "tests/rootless"
# nobody sees what root's tests keep on this machine, as on one where they never ran
HIDE = """
for folder in /var/lib/salt-virt /run/salt-virt /run/salt-virt-locks; do
    [ ! -d $folder ] || mount -t tmpfs -o ro none $folder
done
exec "$@"
"""
USER = "nobody"
# what a user who cannot install packages must find, beside packages.PYTHON; libvirtd serves its
# test driver
PACKAGES = ("git", "libvirt-daemon", "make")


def tests(arguments, say):
    """Run them; pytest's exit code.

    arguments: pytest's; those that name tests in place of the folder.
    SALTVIRT_LAB_SALT: "3006", "3007" or "3008".
    """
    python = testenv.python(say, os.environ.get("SALTVIRT_LAB_SALT"))
    named = any(word.startswith("tests/") for word in arguments)
    argv = [str(python), "-m", "pytest", *([] if named else [FOLDER]), *arguments]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if os.geteuid() != 0:
        return process.run_bound(argv, cwd=paths.REPOSITORY, env=env)
    if not packages.why_not():
        packages.ensure(say)
    # a socket's whole path has at most 107 characters
    with process.folder("sv", "/tmp") as home:
        return as_nobody(argv, Path(home), env)


def as_nobody(argv, home, env):
    """Run a program as nobody in a copy of this tree; its exit code."""
    tree = home / measured.TREE
    copy(paths.REPOSITORY, tree)
    # the copy goes with its folder: Python may keep what it compiles, as on any master and minion
    env = {key: value for key, value in env.items() if key not in testenv.COMPILING}
    env = measured.at_home(home, env)
    user = pwd.getpwnam(USER)
    run(["chown", "-R", f"{user.pw_uid}:{user.pw_gid}", home])
    alone = ["unshare", "--pid", "--mount-proc", "--fork", "sh", "-e", "-c", HIDE, "hide"]
    # the first process of those: with it all others end
    drop = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups",
            "--no-new-privs", "--pdeathsig", "KILL"]  # fmt: skip
    env = {**env, "HOME": str(home), "TMPDIR": str(home), "USER": USER, "LOGNAME": USER}
    code = process.run_bound([*alone, *drop, *argv], cwd=tree, env=env)
    measured.take_home(home, env)
    return code


def copy(tree, to):
    """The files of a working tree, without what git ignores and git's own."""
    listed = run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=tree).stdout
    for name in filter(None, listed.split("\0")):
        if (tree / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, to / name, follow_symlinks=False)
