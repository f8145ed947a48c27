"""The steps of an operation: lines for the person who waits, events for reactors."""

import time

QUIET_S = 10


class Report:
    """One operation on one guest.

    fleet: where events go. guest, operation: part of the tag, ``salt/virt/<guest>/<operation>``.
    show: callable(text) that puts a line before the person.
    """

    def __init__(self, fleet, guest, operation, show):
        self.fleet = fleet
        self.guest = guest
        self.tag = f"salt/virt/{guest}/{operation}"
        self.show = show
        self._tenth, self._shown = None, 0.0

    def step(self, step, text, **data):
        """Something happened: a line, and the event ``<tag>/<step>`` with the text and data."""
        self.show(text)
        self.fleet.tell(f"{self.tag}/{step}", {"guest": self.guest, "message": text, **data})

    def progress(self, percent, text):
        """A line about long work, for each tenth of it and at least every ten seconds."""
        now = time.monotonic()
        if percent // 10 != self._tenth or now - self._shown > QUIET_S:
            self._tenth, self._shown = percent // 10, now
            self.show(text)

    def failed(self, error):
        """The event ``<tag>/failed``. The line is the operation's own answer."""
        self.fleet.tell(f"{self.tag}/failed", {"guest": self.guest, "message": str(error)})

    def host_says(self, tag, data):
        """For Fleet.ask's ``watch``: what a host reports of its own steps."""
        text = data.get("message") or tag.rsplit("/", 1)[-1]
        self.show(f"{self.guest}: {text}")
