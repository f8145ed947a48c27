"""Many migrations: some at once, carrying on past a failure, ending with what is left and why."""

from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from saltvirt import errors


@dataclass
class Outcome:
    """moved: guest to the host it is on now. left: guest to why it was not moved."""

    moved: dict = field(default_factory=dict)
    left: dict = field(default_factory=dict)

    def text(self):
        """One line: how many moved, and each that did not with its reason."""
        line = f"{len(self.moved)} moved"
        if self.left:
            reasons = "; ".join(f"{name}: {why}" for name, why in sorted(self.left.items()))
            line += f", {len(self.left)} left: {reasons}"
        return line


def run(targets, migrate, report, at_once=2):
    """Moves each guest to its target.

    targets: guest to host, in the order to begin. migrate: callable(guest, target) that returns
    the host the guest is on then, and raises VirtError. It is called from several threads.
    Returns an Outcome; a failure of one guest does not stop the others.
    """
    outcome = Outcome()
    with ThreadPoolExecutor(max_workers=max(1, at_once)) as pool:
        running = {pool.submit(migrate, guest, host): guest for guest, host in targets.items()}
        for done in as_completed(running):
            guest = running[done]
            try:
                outcome.moved[guest] = done.result()
                report.step("moved", f"{guest} is on {outcome.moved[guest]}", guest=guest)
            except errors.VirtError as exc:
                outcome.left[guest] = exc.text
                report.step("left", f"{guest} stays: {exc.text}", guest=guest)
    return outcome
