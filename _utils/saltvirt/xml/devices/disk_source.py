"""The location of a disk's data: a file, a block device, a volume of a pool, or a server."""

from __future__ import annotations

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.kinds import INT, YES_NO

# libvirt's default ports
DEFAULT_PORTS = {
    "http": 80, "https": 443, "ftp": 21, "ftps": 990, "tftp": 69, "ssh": 22,
    "nbd": 10809, "gluster": 24007, "iscsi": 3260, "sheepdog": 7000, "nfs": 2049,
}  # fmt: skip


class SourceHost(Element):
    """``<host>``: one server of a network source."""

    TAG = "host"

    name = Prop("@name")
    port = Prop("@port", INT)
    transport = Prop("@transport")
    socket = Prop("@socket")


class DiskSource(Element):
    """``<source>`` of a disk; the disk's type determines the relevant properties."""

    TAG = "source"

    file = Prop("@file")
    dev = Prop("@dev")
    dir = Prop("@dir")
    pool = Prop("@pool")
    volume = Prop("@volume")
    mode = Prop("@mode")
    protocol = Prop("@protocol")
    name = Prop("@name")
    query = Prop("@query")
    tls = Prop("@tls", YES_NO)
    startup_policy = Prop("@startupPolicy")
    index = Prop("@index", INT)
    hosts = Children("host", SourceHost)
    snapshot = Prop("snapshot/@name")
    config_file = Prop("config/@file")
    auth_username = Prop("auth/@username")
    auth_type = Prop("auth/secret/@type")
    auth_usage = Prop("auth/secret/@usage")
    auth_uuid = Prop("auth/secret/@uuid")
    initiator = Prop("initiator/iqn/@name")
    ssl_verify = Prop("ssl/@verify", YES_NO)
    readahead_bytes = Prop("readahead/@size", INT)
    timeout_s = Prop("timeout/@seconds", INT)

    def location(self) -> str | None:
        """The path, ``pool/volume`` or address of the source as text, or None."""
        if not self:
            return None
        if self.pool:
            return f"{self.pool}/{self.volume}"
        if self.protocol:
            default = DEFAULT_PORTS.get(self.protocol, "")
            hosts = ",".join(f"{h.name or h.socket}:{h.port or default}" for h in self.hosts)
            query = f"?{self.query}" if self.query else ""
            return f"{self.protocol}://{hosts}/{(self.name or '').lstrip('/')}{query}"
        return self.file or self.dev or self.dir
