"""The steps of an operation: lines for the person who waits, events for reactors."""

from saltvirt import plain
from saltvirt.fleet import progress
from saltvirt.operations import result


def screen(functions, opts):
    """Where a runner shows its lines. functions, opts: its ``__salt__`` and ``__opts__``."""
    return progress.Screen(functions, result.OUTPUTTER, bool(opts.get("output")))


def of_runner(fleet, guest, operation, functions):
    """The Report of an operation that a runner's function begins."""
    return Report(fleet, guest, operation, screen(functions, fleet.opts))


class Report:
    """One operation on one guest.

    fleet: where events go. guest, operation: part of the tag, ``salt/virt/<guest>/<operation>``.
    screen: a fleet.progress.Screen, or None where nobody watches.
    """

    def __init__(self, fleet, guest, operation, screen=None):
        self.fleet = fleet
        self.guest = guest
        self.tag = f"salt/virt/{guest}/{operation}"
        self.screen = screen

    def show(self, text):
        """A line for the person who waits."""
        if self.screen:
            self.screen.line(plain.line(text))

    def step(self, step, text, **data):
        """Something happened: a line, and the event ``<tag>/<step>`` with the text and data."""
        self.show(text)
        told = {"guest": self.guest, "message": plain.line(text), **data}
        self.fleet.tell(f"{self.tag}/{step}", told)

    def progress(self, percent, text):
        """The line about long work."""
        if self.screen:
            self.screen.update(percent, plain.line(text))

    def failed(self, error):
        """The event ``<tag>/failed``. The line is the operation's own answer."""
        self.fleet.tell(f"{self.tag}/failed", {"guest": self.guest, "message": str(error)})

    def host_says(self, tag, data):
        """For Fleet.ask's ``watch``: what a host reports of its own steps."""
        text = f"{self.guest}: {data.get('message') or tag.rsplit('/', 1)[-1]}"
        if data.get("percent") is None:
            self.show(text)
        else:
            self.progress(data["percent"], text)
