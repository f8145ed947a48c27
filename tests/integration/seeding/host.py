"""The state of a hypervisor of the lab, and the content of its guests' disks."""

import json

MINION_CONFIG = "/etc/salt/minion.d/seeding.conf"
PYTHON = "/opt/salt/bin/python"
READ = """
import sys
sys.path.insert(0, "/var/cache/salt/minion/extmods/utils")
from saltvirt.images import header
from saltvirt.seed import mounted
disk, *paths = sys.argv[1:]
with mounted.open_tree(disk, header.read(disk).format, "fuse") as tree:
    import json
    print(json.dumps({p: tree.read(p).decode() if tree.exists(p) else None for p in paths}))
"""
LEFT = r"""
find /srv /run/salt-virt -type f -not -path '*/.index/*' -not -path '*/.meta/*' \
  -not -path '*/.locks/*' -not -name '*.lock' 2>/dev/null
ls -d /run/salt-virt/seed-* 2>/dev/null
grep -h ' /run/salt-virt' /proc/mounts
losetup -l -n -O BACK-FILE | grep salt-virt
pgrep -la 'qemu-img|qemu-storage|guestfish|supermin|qemu-nbd'
virsh list --all --name | sed '/^$/d; s/^/domain /'
true
"""


class Host:
    """One hypervisor of a lab."""

    def __init__(self, lab, name):
        self.lab = lab
        self.name = name

    def sh(self, script, check=True):
        """What a shell script printed."""
        return self.lab.exec(self.name, ["sh", "-c", script], check=check).stdout

    def state(self):
        """All that images and seeding could leave: files, mounts, loops, processes, domains."""
        return sorted(line for line in self.sh(LEFT).splitlines() if line)

    def inside(self, disk, *paths):
        """{path: text} of files in a guest's disk, None for what is not there."""
        out = self.lab.exec(self.name, [PYTHON, "-c", READ, disk, *paths]).stdout
        return json.loads(out)

    def call(self, fun, **kwargs):
        """A function's return; a text is its error."""
        return self.lab.call(self.name, fun, timeout=500, **kwargs)

    def configure(self, text):
        """Gives the minion more configuration; None takes it away."""
        if text is None:
            self.sh(f"rm -f {MINION_CONFIG}")
        else:
            self.sh(f"cat > {MINION_CONFIG} <<'EOF'\n{text}\nEOF")
        self.restart()

    def restart(self):
        self.sh("systemctl reset-failed salt-minion")
        self.lab.restart_minion(self.name)

    def begin(self, fun, **kwargs):
        """Starts a job and does not wait for it."""
        words = [f"{key}={json.dumps(value)}" for key, value in kwargs.items()]
        self.lab.exec("master", ["salt", "--async", self.name, fun, *words])

    def kill_minion_when(self, condition, timeout_s=500):
        """kill -9 of the whole minion in the moment when a shell condition becomes true."""
        self.sh(
            f"end=$(( $(date +%s) + {timeout_s} ))\n"
            f"until {condition}; do [ $(date +%s) -lt $end ] || exit 9; done\n"
            "while pkill -9 -f '[s]alt-minion'; do [ $(date +%s) -lt $end ] || exit 9; done"
        )
