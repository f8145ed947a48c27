"""The user's arguments for a disk."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from saltvirt import units
from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import REMOVE, Spec, key, nested
from saltvirt.spec.iotune import IoTuneSpec
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.devices.disk_source import DiskSource, SourceHost

BUSES = ("virtio", "scsi", "sata", "ide", "usb", "fdc", "xen", "sd")
PROTOCOLS = ("rbd", "gluster", "http", "https", "ftp", "ftps", "tftp", "iscsi", "nbd", "ssh")
FORMATS = ("qcow2", "raw", "vmdk", "vdi", "qed", "vhdx", "vpc", "qcow")
_TARGET = re.compile(r"(vd|sd|hd|xvd|fd)[a-z]{1,3}|fd[ab]")
_CREDENTIALS = re.compile(r"//[^/@]*@")
_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^:\s/]+)(:(?P<port>\d+))?")


@dataclass
class HostSpec(Spec):
    """A server: ``name:port``, or a dictionary."""

    NONE_REMOVES = False

    name: str | None = key(values.text, xml=SourceHost.name)
    port: int | None = key(values.port, xml=SourceHost.port)
    transport: str | None = key(values.choice("tcp", "unix", "rdma"), xml=SourceHost.transport)
    socket: str | None = key(values.path, xml=SourceHost.socket)


def host(value: Any, argument: str) -> HostSpec:
    """A HostSpec from ``name``, ``name:port``, ``[ipv6]:port`` or a dictionary."""
    if isinstance(value, dict):
        return HostSpec.parse(value, argument)
    match = _HOST.fullmatch(str(value))
    if not match:
        raise InvalidInput(f"{argument} {value!r} is not a host name with an optional port")
    groups = match.groupdict()
    number = values.port(groups["port"], argument) if groups["port"] else None
    return HostSpec(name=groups["name"].strip("[]"), port=number)


@dataclass
class AuthSpec(Spec):
    """Credentials for a server; the password is in a libvirt secret."""

    NONE_REMOVES = False

    username: str | None = key(values.text, xml=DiskSource.auth_username)
    type: str | None = key(values.choice("ceph", "iscsi", "chap", "volume"))
    usage: str | None = key(values.text, xml=DiskSource.auth_usage)
    uuid: str | None = key(values.word, xml=DiskSource.auth_uuid)

    def check(self, argument: str) -> None:
        if bool(self.usage) == bool(self.uuid):
            raise InvalidInput(f"{argument}: name the libvirt secret by either usage or uuid")


@dataclass
class NetworkSourceSpec(Spec):
    """A disk on a server."""

    NONE_REMOVES = False

    protocol: str = key(values.choice(*PROTOCOLS), xml=DiskSource.protocol)
    name: str | None = key(values.text, xml=DiskSource.name)
    hosts: list[HostSpec] | None = key(values.list_of(host))
    query: str | None = key(values.text, xml=DiskSource.query)
    snapshot: str | None = key(values.text, xml=DiskSource.snapshot)
    config_file: str | None = key(values.path, xml=DiskSource.config_file)
    initiator: str | None = key(values.text, xml=DiskSource.initiator)
    tls: bool | None = key(values.boolean, xml=DiskSource.tls)
    auth: AuthSpec | None = key(nested(AuthSpec), xml=AuthSpec)

    def check(self, argument: str) -> None:
        if not self.protocol:
            raise InvalidInput(f"{argument}: protocol is missing; one of {', '.join(PROTOCOLS)}")
        if self.protocol != "rbd" and not self.hosts:
            raise InvalidInput(f"{argument}: hosts is missing")
        if self.protocol != "nbd" and not self.name:
            raise InvalidInput(f"{argument}: name is missing")


def from_url(url: str, argument: str) -> NetworkSourceSpec:
    """A NetworkSourceSpec from ``http://host:port/path?query``, ``rbd://host/pool/image``…"""
    safe_url = units.short_repr(_CREDENTIALS.sub("//…@", url))
    try:
        split = urlsplit(url)
        port = split.port
    except ValueError:
        raise InvalidInput(
            f"{argument} {safe_url} is not a valid URL: its host or port is invalid"
        ) from None
    if split.scheme not in PROTOCOLS or not split.hostname:
        raise InvalidInput(f"{argument} {safe_url} is not a URL of {', '.join(PROTOCOLS)}")
    if "@" in split.netloc:
        raise InvalidInput(
            f"{argument} {safe_url} names a user, which a URL cannot hand over safely: give source "
            "as a dictionary, with the user as auth: username and the libvirt secret as auth: usage"
        )
    source = NetworkSourceSpec(
        protocol=split.scheme,
        name=split.path if split.scheme in ("http", "https") else split.path.lstrip("/"),
        hosts=[HostSpec(name=split.hostname, port=port)],
        query=split.query or None,
    )
    source.check(argument)
    return source


def _source(value: Any, argument: str) -> NetworkSourceSpec:
    if isinstance(value, str):
        return from_url(value, argument)
    return NetworkSourceSpec.parse(value, argument)


def _target(value: Any, argument: str) -> str:
    if not _TARGET.fullmatch(str(value)):
        raise InvalidInput(f"{argument} {value!r} is not a target such as vda, sda, hda or xvda")
    return str(value)


def detach(value: Any, argument: str) -> bool | list[str]:
    """The disks that may be detached although they are not listed: none, all, or those named."""
    if isinstance(value, (list, tuple)):
        return [values.word(item, argument) for item in value]
    if str(value).lower() in ("true", "false", "yes", "no", "on", "off"):
        return values.boolean(value, argument)
    return [values.word(item, argument) for item in str(value).split(",")]


@dataclass
class DiskSpec(Spec):
    """One item of ``disks`` or of a disk profile."""

    NONE_LEAVES = frozenset(
        ("name", "format", "size_bytes", "pool", "model", "device", "image", "image_hash",
         "overlay_image", "backing_store_path", "backing_store_format", "source_file", "existing",
         "source", "target", "hostname_property", "sparse_volume")
    )  # fmt: skip

    name: str = key(values.word, required=True)
    format: str | None = key(values.choice(*FORMATS))
    size_bytes: int | None = key(values.size_bytes, name="size")
    pool: str | None = key(values.text)
    model: str | None = key(values.choice(*BUSES))
    device: str | None = key(values.choice("disk", "cdrom", "floppy", "lun"))
    image: str | None = key(values.text)
    image_hash: str | None = key(values.text)
    overlay_image: bool | None = key(values.boolean)
    backing_store_path: str | None = key(values.text)
    backing_store_format: str | None = key(values.choice(*FORMATS))
    source_file: str | None = key(values.text)
    existing: bool | None = key(values.boolean)
    source: NetworkSourceSpec | None = key(_source)
    target: str | None = key(_target)
    hostname_property: str | None = key(values.text)
    sparse_volume: bool | None = key(values.boolean)
    discard: str | None = key(values.choice("unmap", "ignore"))
    cache: str | None = key(
        values.choice("default", "none", "writethrough", "writeback", "directsync", "unsafe"),
        xml=Disk.cache,
    )
    io: str | None = key(values.choice("native", "threads", "io_uring"), xml=Disk.io)
    detect_zeroes: str | None = key(values.choice("off", "on", "unmap"), xml=Disk.detect_zeroes)
    queues: int | None = key(values.count, xml=Disk.queues)
    serial: str | None = key(values.word, xml=Disk.serial)
    wwn: str | None = key(values.word, xml=Disk.wwn)
    read_only: bool | None = key(values.boolean, xml=Disk.read_only)
    shareable: bool | None = key(values.boolean, xml=Disk.shareable)
    iothread_id: int | None = key(values.count, xml=Disk.iothread)
    boot_order: int | None = key(values.count, xml=Disk.boot_order)
    iotune: IoTuneSpec | None = key(nested(IoTuneSpec))
    empty: bool = False
    # the size is from the default profile: an image may be larger
    size_is_default: bool = False

    @classmethod
    def parse(cls, value: Any, argument: str) -> DiskSpec:
        result = super().parse(value, argument)
        result.device = result.device or "disk"
        # a drive without medium has source_file: None, or no source at all
        result.empty = result.removable and not (
            result.source_file or result.source or result.image
        )
        return result

    @property
    def removable(self) -> bool:
        """True for CD drives and floppies."""
        return self.device in ("cdrom", "floppy")

    def check(self, argument: str) -> None:
        if self.cache == "default":
            self.cache = REMOVE  # libvirt's default is no setting
        if self.backing_store_path and not self.backing_store_format:
            raise InvalidInput(f"{argument}: backing_store_path needs backing_store_format")
        if self.overlay_image and not self.image:
            raise InvalidInput(f"{argument}: overlay_image needs image, the base image")
        if self.overlay_image and self.format not in (None, "qcow2"):
            raise InvalidInput(f"{argument}: overlay_image needs format qcow2, not {self.format}")
        if self.existing and (self.source or self.source_file):
            raise InvalidInput(
                f"{argument}: existing is for the disk of this name; give it or a source"
            )
        if self.source and self.source_file:
            raise InvalidInput(f"{argument}: give either source or source_file")
        if self.source_file and "://" in self.source_file:
            self.source, self.source_file = from_url(self.source_file, argument), None
        elif self.source_file and not self.pool:
            values.path(self.source_file, f"{argument}:source_file")
