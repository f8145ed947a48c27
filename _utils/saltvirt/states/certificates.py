"""States of certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost


# parts of the subject, unless the master's virt:pki sets them, and the validity
SUBJECT = ("country", "state", "locality", "organization", "expiration_days")


def placed(host: StateHost, name: str, **options: Any) -> Answer:
    """See ``virt.keys``."""
    response = host.call("tls_update", test=host.test, **options)
    comment = "All keys are correct"
    if response["changes"] and host.test:
        comment = "Libvirt keys are set to be updated"
    elif response["changes"]:
        comment = ". ".join(["Updated libvirt certs and keys", *response["notes"]])
    return answer(name, response["changes"], comment, host.test)
