"""The calls that the master makes to the hypervisor of a guest for its displays, serial ports and
agent."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.answers.calls import Call, Timeout
from saltvirt.answers.reach import Displays, Reach, Screenshot
from saltvirt.schema import Message


@dataclass(frozen=True)
class DisplaysRequest(Message):
    """List the displays and serial ports of a guest."""

    vm_: str


@dataclass(frozen=True)
class ScreenshotRequest(Message):
    """Take a screenshot of a running guest.

    width: maximum in pixels; not applied if the hypervisor does not return PPM images. screen:
    number of the display.
    """

    vm_: str
    width: int = 480
    screen: int = 0


@dataclass(frozen=True)
class ReachRequest(Message):
    """Wait up to 40 s for a client of a guest's display, serial port or agent.

    kind: DISPLAY, SERIAL or AGENT. caller: PEM of the CA certificate whose only client is admitted.
    screen: number of the display. force: disconnect the current user of the serial port.
    """

    vm_: str
    kind: str
    caller: str
    screen: int = 0
    force: bool = False


LIST_DISPLAYS = Call("display", DisplaysRequest, Displays, Timeout.SHORT)
TAKE_SCREENSHOT = Call("screen", ScreenshotRequest, Screenshot, Timeout.SHORT)
START_RELAY = Call("reach", ReachRequest, Reach, Timeout.SHORT)
