"""States of the firewall."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost


def applied(host: StateHost, name: str, **ports: Any) -> Answer:
    """See ``virt.firewall``."""
    plan = host.call("firewall_plan", **ports)
    kind = plan["kind"]
    comment = f"{kind} admits {', '.join(plan['hosts']) or 'no hosts'}"
    if not plan["differs"]:
        return answer(name, comment=comment)
    if host.test:
        comment = f"{kind} would be changed"
    else:
        host.call("firewall_apply", **ports)
    return answer(name, {kind: plan["rules"]}, comment, host.test)


def absent(host: StateHost, name: str) -> Answer:
    """See ``virt.firewall_absent``."""
    if not host.call("firewall_made"):
        return answer(name, comment="Salt Virt has no rules here")
    if not host.test:
        host.call("firewall_remove")
    comment = f"The rules {'would be' if host.test else 'were'} removed"
    return answer(name, {"rules": "removed"}, comment, host.test)
