"""Read a page of the manual and follow it: write its files and run its commands, in order."""

import re

from tests.lab import paths

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
VARIABLE = re.compile(r"[A-Z]+=")


class Page:
    """A page of docs, typed on a lab's master.

    instead: {what the page names: what it is here}. said: {(command, its how manieth time): a
    function of what it printed}, as the page promises it. ends: the commands that end badly, with
    their code. before: {title of a section: what happens before its first block}. only: the titles
    of the sections that are followed; None: all of them.
    """

    def __init__(self, cloud, name, instead, said=(), ends=(), before=(), only=None):
        self.cloud = cloud
        self.text = paths.page(name).read_text(encoding="utf-8")
        for named, ours in instead.items():
            self.text = self.text.replace(named, ours)
        self.said, self.ends, self.before = dict(said), dict(ends), dict(before)
        self.only = only
        self._typed, self._variables = [], []

    def follow(self):
        """Does all that the page says. AssertionError at what ends otherwise than it says."""
        for section in self.text.split("\n## "):
            title = section.partition("\n")[0]
            followed = self.only is None or title in self.only
            blocks = BLOCK.findall(section) if followed else []
            if blocks:
                self.before.pop(title, str)()
            for kind, block in blocks:
                {"yaml": self._write, "sh": self._type_all}[kind](block)
        assert [*self.said, *self.ends, *self.before] == [], "the page no longer has these"

    def _write(self, block):
        """A file: its path is the block's first line."""
        first, _, text = block.partition("\n")
        assert first.startswith("# /"), block
        self.cloud.exec("master", f"cat > {first.removeprefix('# ')}", input=text)

    def _type_all(self, block):
        for command in block.splitlines():
            if VARIABLE.match(command):
                self._variables.append(command)
            else:
                self._type(command)

    def _type(self, command):
        self._typed.append(command)
        time = (command, self._typed.count(command))
        typed = "\n".join([*self._variables, command])
        done = self.cloud.exec("master", typed, check=False, timeout=2700)
        said = done.stdout + done.stderr
        print(f"# {command}\n{said}")  # pytest shows it when the page is wrong
        assert done.returncode == self.ends.pop(time, 0), f"{command}\n{said}"
        assert "Traceback" not in said, f"{command}\n{said}"
        if command == "systemctl restart salt-master":
            self.cloud.wait_for_minion(*self._running())
        self.said.pop(time, str)(said)

    def _running(self):
        return [host for host in self.cloud.hosts if self.cloud.machine(host).leader()]
