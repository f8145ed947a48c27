"""Read a page of the manual and follow it: write its files, run its commands in order, and compare
the outputs that it shows."""

import re

from tests.lab import paths
from tests.tools import typed_manual

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
        self.text = typed_manual.joined(paths.page(name).read_text(encoding="utf-8"))
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
            blocks = list(typed_manual.BLOCK.finditer(section)) if followed else []
            if blocks:
                self.before.pop(title, str)()
            for block in blocks:
                self._follow(block)
        assert [*self.said, *self.ends, *self.before] == [], "the page no longer has these"

    def _follow(self, block):
        session = typed_manual.session(block)
        if session.skipped:
            return
        if block["kind"] == "yaml":
            self._write(block["text"])
        elif block["kind"] == "sh":
            self._type_all(block["text"])
        for number, (command, lines) in enumerate(session.steps, 1):
            fails = session.fails and number == len(session.steps)
            printed = self._type(command, fails)
            wrong = typed_manual.mismatch(lines, printed, session.varies)
            assert wrong is None, f"{command}\nnot printed: {wrong}\nprinted:\n{printed}"

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

    def _type(self, command, fails=False):
        self._typed.append(command)
        time = (command, self._typed.count(command))
        typed = "\n".join([*self._variables, command])
        done = self.cloud.exec("master", typed, check=False, timeout=2700)
        said = done.stdout + done.stderr
        print(f"# {command}\n{said}")  # pytest shows it when the page is wrong
        code = self.ends.pop(time, 1 if fails else 0)
        assert done.returncode == code, f"{command}\n{said}"
        assert "Traceback" not in said, f"{command}\n{said}"
        if command == "systemctl restart salt-master":
            self.cloud.wait_for_minion(*self._running())
        self.said.pop(time, str)(said)
        return done.stdout

    def _running(self):
        return [host for host in self.cloud.hosts if self.cloud.machine(host).leader()]
