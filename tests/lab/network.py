"""The lab's switch and its links, in network namespaces of their own.

Every instance has the same addresses: nothing of it is in the machine's own
network namespace.
"""

from pathlib import Path

from tests.lab.process import kill
from tests.lab.sh import run

PREFIX = "10.77.0"
MASTER = f"{PREFIX}.1"


def address(index):
    """The address of hypervisor `index` (1, 2, …)."""
    return f"{PREFIX}.{index + 10}"


class Network:
    """The namespaces of one instance: the switch, and one for each machine."""

    def __init__(self, instance):
        self.prefix = f"svlab-{instance}-"
        self.switch = f"{self.prefix}switch."

    def namespace(self, machine):
        """The name of a machine's network namespace."""
        return f"{self.prefix}{machine}"

    def make_switch(self):
        """Make the namespace of the switch."""
        run(["ip", "netns", "add", self.switch])
        for arguments in ("link add lan type bridge", "link set lan up"):
            run(["ip", "-n", self.switch, *arguments.split()])

    def plug(self, machine):
        """Make a machine's namespace, with an eth0 that leads to the switch."""
        space = self.namespace(machine)
        run(["ip", "netns", "add", space])
        run(["ip", "-n", space, "link", "set", "lo", "up"])
        run(["ip", "link", "add", f"to-{machine}", "netns", self.switch,
             "type", "veth", "peer", "name", "eth0", "netns", space])  # fmt: skip
        run(["ip", "-n", self.switch, "link", "set", f"to-{machine}", "master", "lan", "up"])

    def link(self, machine, state):
        """Set a machine's cable "up" (in) or "down" (out)."""
        run(["ip", "-n", self.switch, "link", "set", f"to-{machine}", state])

    def remove(self):
        """Kill what still runs in the namespaces, and remove them."""
        folder = Path("/run/netns")
        for path in folder.glob(f"{self.prefix}*") if folder.exists() else ():
            if not self.is_ours(path.name):
                continue
            for pid in run(["ip", "netns", "pids", path.name], check=False).stdout.split():
                kill(int(pid))
            run(["ip", "netns", "del", path.name], check=False)

    def is_ours(self, name):
        """Is this namespace of this instance, and not of one whose name begins the same?"""
        if not name.startswith(self.prefix):
            return False
        rest = name.removeprefix(self.prefix)
        return rest in ("switch.", "master") or (rest.startswith("hv") and rest[2:].isdigit())
