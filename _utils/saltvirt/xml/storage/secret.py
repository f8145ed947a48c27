"""A libvirt secret for a storage server, a TPM or TLS."""

from __future__ import annotations

from saltvirt.xml.base import Element, Prop
from saltvirt.xml.kinds import YES_NO


class Secret(Element):
    """``<secret>``; the value itself is never in the XML."""

    TAG = "secret"

    ephemeral = Prop("@ephemeral", YES_NO)
    private = Prop("@private", YES_NO)
    uuid = Prop("uuid")
    description = Prop("description")
    usage_type = Prop("usage/@type")
    usage_name = Prop("usage/name")
    usage_target = Prop("usage/target")
    usage_volume = Prop("usage/volume")

    @property
    def usage(self) -> str | None:
        """The usage id of the secret."""
        return self.usage_name or self.usage_target or self.usage_volume
