"""Certificates of a host as they shall be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost


# parts of the subject, where the master sets none in virt:pki, and for how long
SUBJECT = ("country", "state", "locality", "organization", "expiration_days")


def placed(host: StateHost, name: str, **given: Any) -> Answer:
    """See ``virt.keys``."""
    found = host.call("tls_update", test=host.test, **given)
    comment = "All keys are correct"
    if found["changes"] and host.test:
        comment = "Libvirt keys are set to be updated"
    elif found["changes"]:
        comment = ". ".join(["Updated libvirt certs and keys", *found["notes"]])
    return answer(name, found["changes"], comment, host.test)
