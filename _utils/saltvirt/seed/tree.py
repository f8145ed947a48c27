"""A guest's files in a folder of this host.

What is in a guest is not to be trusted: a link in it to /etc is the guest's /etc, never ours.
"""

import os
import shutil
import stat
import tempfile

from saltvirt import errors
from saltvirt.images import tools

_MOST_LINKS = 40
_SCRIPT_TIMEOUT_S = 1800
# not in /tmp, over which systemd-nspawn mounts another
_SCRIPT = "/root/.salt-virt-bootstrap.sh"


class DirTree:
    """The guest's files below ``root``. Paths are the guest's absolute ones.

    enter: makes an argv run where ``inside`` is the root's path; default: here.
    """

    def __init__(self, root, enter=list, inside=None):
        self.root = os.path.abspath(root)
        self._enter = enter
        self._inside = inside or self.root

    def _place(self, path, follow=True):
        """Our path of a guest's path: links are followed inside of the root alone."""
        todo = [part for part in path.split("/") if part]
        done, links = [], 0
        while todo:
            part = todo.pop(0)
            if part in (".", ".."):
                done = done[:-1] if part == ".." else done
                continue
            here = os.path.join(self.root, *done, part)
            if os.path.islink(here) and (todo or follow):
                links += 1
                if links > _MOST_LINKS:
                    raise errors.SeedFailed(f"{path} in the guest is a circle of links")
                target = os.readlink(here)
                done = [] if target.startswith("/") else done
                todo = [one for one in target.split("/") if one] + todo
            else:
                done.append(part)
        return os.path.join(self.root, *done)

    def exists(self, path):
        return os.path.exists(self._place(path))

    def is_dir(self, path):
        return os.path.isdir(self._place(path))

    def is_file(self, path):
        """A file itself, not a link to one."""
        here = self._place(path, follow=False)
        return os.path.lexists(here) and stat.S_ISREG(os.lstat(here).st_mode)

    def names(self, path):
        return sorted(os.listdir(self._place(path))) if self.is_dir(path) else []

    def read(self, path):
        with open(self._place(path), "rb") as file:
            return file.read()

    def make_dir(self, path, mode):
        os.makedirs(self._place(path), exist_ok=True)
        os.chmod(self._place(path), mode)

    def write(self, path, content, mode):
        """A new file of root's under that name, whatever was there."""
        here = self._place(path)
        os.makedirs(os.path.dirname(here), exist_ok=True)
        fd, part = tempfile.mkstemp(dir=os.path.dirname(here), prefix=".salt-virt-")
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(part, here)
        except OSError:
            os.unlink(part)
            raise

    def remove(self, path):
        here = self._place(path, follow=False)
        if os.path.lexists(here):
            os.unlink(here)

    def link(self, target, path):
        self.remove(path)
        os.symlink(target, self._place(path, follow=False))

    def run_script(self, script, args):
        """Runs a shell script inside of the guest's system, in a container of its own."""
        if not shutil.which("systemd-nspawn"):
            raise errors.Unsupported(
                "this host can run no script inside of an image: install systemd-container or "
                "libguestfs, or let the guest do it at its first boot"
            )
        container = ["systemd-nspawn", "-q", "--register=no", "--resolv-conf=bind-host", "-D"]
        self.write(_SCRIPT, script.encode(), 0o700)
        try:
            tools.run(
                self._enter([*container, self._inside, "/bin/sh", _SCRIPT, *args.split()]),
                "run the bootstrap script inside of the image",
                errors.SeedFailed,
                timeout_s=_SCRIPT_TIMEOUT_S,
            )
        finally:
            self.remove(_SCRIPT)
