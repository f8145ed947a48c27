"""A guest's agent, asked by libvirt."""

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

# for one command; an agent answers in moments, what it begins goes on without it
TIMEOUT_S = 20
# for one that may bring much
LONG_TIMEOUT_S = 90
_LEAD = re.compile(r".*unable to execute QEMU agent command '[^']*': ", re.DOTALL)
_DISABLED = re.compile("has been disabled|has not been found|not allowed|is blocked", re.IGNORECASE)
# libvirt's errors for an agent that hangs; not each binding has all of them
_UNRESPONSIVE = (
    "VIR_ERR_AGENT_UNRESPONSIVE", "VIR_ERR_AGENT_UNSYNCED", "VIR_ERR_AGENT_COMMAND_TIMEOUT",
    "VIR_ERR_OPERATION_TIMEOUT",
)  # fmt: skip
_NO_SUCH_FILE = re.compile("No such file or directory")


class Agent:
    """Of one guest. say: called with a command as JSON and so many seconds; returns the answer as
    JSON, or raises VirtError."""

    def __init__(self, name: str, send: Callable[[str, int], object]) -> None:
        self.name = name
        self._send = send

    def ask(self, command_name: str, timeout_s: int = TIMEOUT_S, **arguments: Any) -> Any:
        """What the agent returns. Raises Unsupported: it does not do this; NotFound: no such file;
        ConnectionFailed: it does not answer; OperationFailed: its own words; BadAnswer."""
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
                f"the guest agent of {self.name} has {command_name} switched off: what does its "
                f"configuration in the guest block? It says: {text}"
            )
        kind = errors.NotFound if _NO_SUCH_FILE.search(text) else errors.OperationFailed
        return kind(f"the guest agent of {self.name}: {text}")


def for_domain(dom: libvirt.virDomain) -> Agent:
    """Of a running guest. Raises Refused: it is off; Unsupported: it has no channel, or no agent
    is there."""
    name = dom.name()
    if not dom.isActive():
        raise errors.Refused(f"{name} is off: start it first")
    if libvirt_qemu is None:
        raise errors.Unsupported(
            "the libvirt binding here has no libvirt_qemu: it comes with libvirt-python"
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
                    f"the guest agent of {name} does not answer (is qemu-guest-agent at work "
                    f"there?): {exc.text}"
                ) from exc
            raise

    return Agent(name, send)


def require(dom: libvirt.virDomain, name: str) -> None:
    """Raises Unsupported where a running guest has no agent that could be asked."""
    for node in stats.tree(dom).iterfind("devices/channel/target"):
        if node.get("name") == agent_protocol.CHANNEL:
            if node.get("state") != "connected":
                raise errors.Unsupported(
                    f"no guest agent answers in {name}: is qemu-guest-agent installed and at work?"
                )
            return
    raise errors.Unsupported(
        f"{name} has no channel for a guest agent: virt.update {name} guest_agent=True adds one"
    )
