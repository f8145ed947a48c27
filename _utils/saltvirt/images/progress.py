"""How a long copy tells of itself: now and then, not for every block."""

from saltvirt.units import human_bytes

_STEP_BYTES = 256 * 1024 * 1024


class Steps:
    """Says every tenth part, or every 256 MiB where nobody knows how much there is.

    say: called with ``40 %`` or ``512.0 MiB``.
    """

    def __init__(self, say):
        self._say = say
        self._said = 0

    def report(self, done, total):
        """done, total: bytes; total may be None."""
        step = done * 10 // total if total else done // _STEP_BYTES
        if step > self._said:
            self._said = step
            self._say(f"{step * 10} %" if total else human_bytes(done))
