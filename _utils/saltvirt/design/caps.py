"""The capabilities of a host's libvirt, as plain data from its XML."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from saltvirt import units
from saltvirt.errors import InvalidInput, Unsupported
from saltvirt.xml import tree
from saltvirt.xml.tree import child

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from xml.etree.ElementTree import Element

# virtualisation types, the preferred first
VIRT_TYPES = ("kvm", "xen", "hvf", "bhyve", "vmware", "test", "lxc", "qemu")
OS_TYPES = ("hvm", "xen", "xenpvh", "exe")
X86 = ("x86_64", "i686")


@dataclass(frozen=True)
class CapsGuest:
    """A kind of guest: an OS type on an architecture, with its emulators."""

    os_type: str
    arch: str
    virt_types: tuple[str, ...] = ()
    emulators: dict[str | None, str | None] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    loader: str | None = None

    def emulator(self, virt_type: str) -> str | None:
        """The emulator for a guest of this virt type."""
        return self.emulators.get(virt_type) or self.emulators.get(None)

    def machine(self, name: str) -> str | None:
        """The canonical name of a machine, for example ``pc-i440fx-7.2`` for ``pc``; None if
        unknown."""
        return self.machines.get(name)


@dataclass(frozen=True)
class HostCapabilities:
    """The host itself."""

    arch: str | None = None
    uuid: str | None = None
    cpu_model: str | None = None
    cpu_vendor: str | None = None
    cpus: int = 0
    memory_kib: int = 0
    cells: tuple[CapsNumaCell, ...] = ()
    page_sizes_kib: tuple[int, ...] = ()
    security_models: tuple[str, ...] = ()
    iommu: bool = False
    live_migration: bool = False


@dataclass(frozen=True)
class CapsNumaCell:
    """One NUMA node of the host."""

    id: int
    memory_kib: int
    cpus: tuple[int, ...]


class CapsDevice(TypedDict):
    """A kind of device: whether the hypervisor supports it, and the values of its properties."""

    supported: bool
    enums: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class DomainCaps:
    """The domain capabilities of a virt type, architecture and machine."""

    virt_type: str
    arch: str
    machine: str | None
    emulator: str | None
    max_vcpus: int | None = None
    iothreads: bool = False
    firmware: tuple[str, ...] = ()
    loaders: tuple[str, ...] = ()
    secure_boot: bool = False
    cpu_modes: tuple[str, ...] = ()
    cpu_model: str | None = None
    cpu_models: dict[str, bool] = field(default_factory=dict)
    devices: dict[str, CapsDevice] = field(default_factory=dict)
    features: dict[str, bool] = field(default_factory=dict)
    # Hyper-V enlightenments; None: libvirt (before 8.9) does not report them
    hyperv: tuple[str, ...] | None = None

    def allows(self, device: str, name: str, value: str) -> bool | None:
        """Whether ``value`` is a valid value of a device, for example ("disk", "bus", "sata").

        None if this libvirt does not report it.
        """
        device_caps = self.devices.get(device)
        if device_caps is None:
            return None
        return device_caps["supported"] and value in device_caps["enums"].get(name, ())

    def has(self, device: str) -> bool | None:
        """Whether the hypervisor supports a kind of device; None if libvirt does not report it."""
        device_caps = self.devices.get(device)
        return None if device_caps is None else device_caps["supported"]


@dataclass(frozen=True)
class Caps:
    """A host's capabilities; ``domain``: those for the new guest, if known."""

    host: HostCapabilities
    guests: tuple[CapsGuest, ...]
    domain: DomainCaps | None = None

    @property
    def virt_types(self) -> tuple[str, ...]:
        """All virt types of the host, the preferred first."""
        kinds = {kind for guest in self.guests for kind in guest.virt_types}
        return tuple(sorted(kinds, key=_rank(VIRT_TYPES)))

    def choose(
        self, arch: str | None = None, os_type: str | None = None, virt_type: str | None = None
    ) -> tuple[CapsGuest, str]:
        """Choose the (CapsGuest, virt type) that matches best.

        Prefers KVM, the host's own architecture, and hvm. Raises Unsupported with the host's
        capabilities.
        """
        fitting = [
            (guest, kind)
            for guest in self.guests
            for kind in guest.virt_types
            if arch in (None, guest.arch)
            and os_type in (None, guest.os_type)
            and virt_type in (None, kind)
        ]
        if not fitting:
            request_text = " ".join(word for word in (virt_type, os_type, arch) if word)
            supported = {f"{k} {g.os_type} {g.arch}" for g in self.guests for k in g.virt_types}
            able = ", ".join(sorted(supported)) or "no guests at all"
            raise Unsupported(f"this host cannot run {request_text or 'guests'}; it can: {able}")
        return min(fitting, key=self._preference)

    def _preference(self, item: tuple[CapsGuest, str]) -> tuple[bool, bool, int, int]:
        guest, kind = item
        return (
            guest.arch != self.host.arch,
            guest.arch != "x86_64",
            _rank(OS_TYPES)(guest.os_type),
            _rank(VIRT_TYPES)(kind),
        )

    def with_domain(self, xml: str) -> Caps:
        """A copy with the domain capabilities of this XML text."""
        return Caps(self.host, self.guests, parse_domain(xml))


def _rank(order: Sequence[str]) -> Callable[[str], int]:
    return lambda word: order.index(word) if word in order else len(order)


def parse(xml: str, domain_xml: str | None = None) -> Caps:
    """Caps from the XML of virConnectGetCapabilities and, if given, of the domain capabilities."""
    root = tree.parse(xml)
    if root.tag != "capabilities":
        raise InvalidInput(f"expected a <capabilities> document, not <{root.tag}>")
    guests = tuple(_guest(node) for node in root.findall("guest"))
    domain = parse_domain(domain_xml) if domain_xml else None
    return Caps(_host(root.find("host")), guests, domain)


def _kib(node: Element | None) -> int:
    text = "" if node is None else (node.text or "").strip()
    if node is None or text in ("", "0"):
        return 0
    return units.parse_bytes(text, node.get("unit", "KiB")) // 1024


def _host(node: Element | None) -> HostCapabilities:
    if node is None:
        return HostCapabilities()
    cells = tuple(
        CapsNumaCell(
            int(cell.get("id", "0")),
            _kib(cell.find("memory")),
            tuple(int(cpu.get("id", "0")) for cpu in cell.findall("cpus/cpu")),
        )
        for cell in node.findall("topology/cells/cell")
    )
    return HostCapabilities(
        arch=node.findtext("cpu/arch"),
        uuid=node.findtext("uuid"),
        cpu_model=node.findtext("cpu/model"),
        cpu_vendor=node.findtext("cpu/vendor"),
        cpus=sum(len(cell.cpus) for cell in cells),
        memory_kib=sum(cell.memory_kib for cell in cells),
        cells=cells,
        page_sizes_kib=tuple(int(page.get("size", "0")) for page in node.findall("cpu/pages")),
        security_models=tuple(
            model.text
            for model in node.findall("secmodel/model")
            if model.text and model.text != "none"
        ),
        iommu=node.find("iommu[@support='yes']") is not None,
        live_migration=node.find("migration_features/live") is not None,
    )


def _guest(node: Element) -> CapsGuest:
    arch = child(node, "arch")
    emulators: dict[str | None, str | None] = {None: arch.findtext("emulator")}
    machines = {}
    for machine in arch.iter("machine"):
        name = machine.text or ""
        machines[name] = machine.get("canonical", name)
    for domain in arch.findall("domain"):
        if domain.findtext("emulator"):
            emulators[domain.get("type")] = domain.findtext("emulator")
    return CapsGuest(
        os_type=node.findtext("os_type", ""),
        arch=arch.get("name", ""),
        virt_types=tuple(domain.get("type", "") for domain in arch.findall("domain")),
        emulators=emulators,
        machines=machines,
        features=tuple(feature.tag for feature in node.findall("features/*")),
        loader=arch.findtext("loader"),
    )


def parse_domain(xml: str) -> DomainCaps:
    """DomainCaps from the XML of virConnectGetDomainCapabilities."""
    root = tree.parse(xml)
    if root.tag != "domainCapabilities":
        raise InvalidInput(f"expected a <domainCapabilities> document, not <{root.tag}>")
    vcpu, iothreads = root.find("vcpu"), root.find("iothreads")
    modes = [m.get("name", "") for m in root.findall("cpu/mode") if m.get("supported") == "yes"]
    hyperv = root.find("features/hyperv")
    return DomainCaps(
        virt_type=root.findtext("domain", ""),
        arch=root.findtext("arch", ""),
        machine=root.findtext("machine"),
        emulator=root.findtext("path"),
        max_vcpus=int(vcpu.get("max", "0")) if vcpu is not None else None,
        iothreads=iothreads is not None and iothreads.get("supported") == "yes",
        firmware=_values(root, "os/enum[@name='firmware']"),
        loaders=tuple(value.text or "" for value in root.findall("os/loader/value")),
        secure_boot="yes" in _values(root, "os/loader/enum[@name='secure']"),
        cpu_modes=tuple(modes),
        cpu_model=root.findtext("cpu/mode[@name='host-model']/model"),
        cpu_models={
            model.text or "": model.get("usable") == "yes"
            for model in root.findall("cpu/mode[@name='custom']/model")
        },
        devices={node.tag: _device(node) for node in root.findall("devices/*")},
        features={node.tag: node.get("supported") == "yes" for node in root.findall("features/*")},
        hyperv=None if hyperv is None else _values(hyperv, "enum[@name='features']"),
    )


def _values(node: Element, path: str) -> tuple[str, ...]:
    parent = node.find(path)
    return (
        tuple(value.text or "" for value in parent.findall("value")) if parent is not None else ()
    )


def _device(node: Element) -> CapsDevice:
    return {
        "supported": node.get("supported") == "yes",
        "enums": {
            enum.get("name", ""): tuple(value.text or "" for value in enum.findall("value"))
            for enum in node.findall("enum")
        },
    }
