"""Access to a guest's agent through libvirt."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from saltvirt import errors
from saltvirt.console.guestagent import agent_protocol
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import stats

try:
    import libvirt_qemu
except ImportError:
    libvirt_qemu = None  # type: ignore[assignment]

# timeout of a command; an agent answers at once, and a process that it starts continues
TIMEOUT_S = 20
# timeout of a command that returns much data
LONG_TIMEOUT_S = 90
_LEAD = re.compile(r".*unable to execute QEMU agent command '[^']*': ", re.DOTALL)
_DISABLED = re.compile("has been disabled|has not been found|not allowed|is blocked", re.IGNORECASE)
# libvirt's errors for an agent that hangs; some bindings lack some of them
_UNRESPONSIVE = (
    "VIR_ERR_AGENT_UNRESPONSIVE", "VIR_ERR_AGENT_UNSYNCED", "VIR_ERR_AGENT_COMMAND_TIMEOUT",
    "VIR_ERR_OPERATION_TIMEOUT",
)  # fmt: skip
_NO_SUCH_FILE = re.compile("No such file or directory")


class Agent:
    """The agent of one guest.

    send: called with a command as JSON and a timeout in seconds; returns the answer as JSON or
    raises VirtError.
    """

    def __init__(self, name: str, send: Callable[[str, int], object]) -> None:
        self.name = name
        self._send = send

    def ask(self, command_name: str, timeout_s: int = TIMEOUT_S, **arguments: Any) -> Any:
        """Send a command and return the agent's return value.

        Raises Unsupported if the agent does not offer the command, NotFound for a missing file,
        ConnectionFailed if the agent does not respond, OperationFailed with the agent's own error,
        and BadAnswer.
        """
        try:
            return agent_protocol.return_value(
                self._send(agent_protocol.command(command_name, **arguments), timeout_s),
                command_name,
            )
        except errors.BadAnswer:
            raise
        except errors.OperationFailed as exc:
            raise self._explain_error(command_name, exc) from exc

    def _explain_error(self, command_name: str, exc: errors.OperationFailed) -> errors.VirtError:
        text = _LEAD.sub("", exc.text)
        if _DISABLED.search(text):
            return errors.Unsupported(
                f"the guest agent of {self.name} does not allow {command_name}: check its "
                "configuration in the guest, for example its list of blocked commands. "
                f"The agent's error: {text}"
            )
        kind = errors.NotFound if _NO_SUCH_FILE.search(text) else errors.OperationFailed
        return kind(f"the guest agent of {self.name}: {text}")


def for_domain(dom: libvirt.virDomain) -> Agent:
    """The agent of a running guest. Raises Refused if the guest is off, Unsupported if it has no
    channel or no agent is connected to it."""
    name = dom.name()
    if not dom.isActive():
        raise errors.Refused(f"{name} is off: start it first")
    if libvirt_qemu is None:
        raise errors.Unsupported(
            "this host's libvirt binding has no libvirt_qemu: install libvirt-python"
        )
    require(dom, name)

    unresponsive = {getattr(libvirt, word, None) for word in _UNRESPONSIVE} - {None}

    def send(text: str, timeout_s: int) -> object:
        try:
            with connection.translated():
                return libvirt_qemu.qemuAgentCommand(dom, text, timeout_s, 0)
        except errors.VirtError as exc:
            code = getattr(exc.__cause__, "get_error_code", lambda: None)()
            if code in unresponsive:
                raise errors.ConnectionFailed(
                    f"the guest agent of {name} does not respond (is qemu-guest-agent "
                    f"running?): {exc.text}"
                ) from exc
            raise

    return Agent(name, send)


def require(dom: libvirt.virDomain, name: str) -> None:
    """Raise Unsupported unless a running guest has an agent that can be asked."""
    for node in stats.tree(dom).iterfind("devices/channel/target"):
        if node.get("name") == agent_protocol.CHANNEL:
            if node.get("state") != "connected":
                raise errors.Unsupported(
                    f"no guest agent responds in {name}: install and start "
                    "qemu-guest-agent in the guest"
                )
            return
    raise errors.Unsupported(
        f"{name} has no channel for a guest agent: add it with virt.update {name} guest_agent=True"
    )
