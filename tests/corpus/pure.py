"""Checks that need no libvirtd: reading, writing and editing one definition. Failures are
sentences."""

import zlib
from dataclasses import dataclass
from xml.etree import ElementTree

from saltvirt.design import caps
from saltvirt.design import domain as design
from saltvirt.design.context import GuestInputs
from saltvirt.design.plain_data import declarations
from saltvirt.design.source import Source
from saltvirt.diff.changes import changes
from saltvirt.errors import VirtError
from saltvirt.spec import guest
from saltvirt.xml.base import Child, Children, Prop
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.domain.snapshot import DomainSnapshot
from saltvirt.xml.network.network import Network
from saltvirt.xml.storage.pool import Pool
from saltvirt.xml.storage.secret import Secret
from saltvirt.xml.storage.volume import Volume
from tests.corpus import same, wishes
from tests.corpus.edits import EDITS
from tests.corpus.report import Report

MODELS = {cls.TAG: cls for cls in (Domain, Network, Pool, Volume, Secret, DomainSnapshot)}


# what these files are wrong in on purpose
WRONG = {"cputune-iothreadsched-toomuch": "a scheduler for a thread that is not there"}


class Failure(Exception):
    """What was demanded and is not so, in one line."""


def _drop(text, schema, edit):
    """Where what was written is not looked at any more."""


@dataclass(frozen=True)
class How:
    """known: DomainCaps of hosts. edits: how many of the edits each guest gets; None is all.
    keep: takes (text, schema, edit's name) of what was written."""

    known: tuple = ()
    edits: int | None = None
    keep: object = _drop


def check(definition, how):
    """The Report of one definition."""
    report = Report(definition.kind)
    with report.step("read", definition.file):
        KINDS.get(definition.kind, _text)(definition, report, how)
    return report


def chosen(definition, number):
    """Some of the edits, others for each file, the same at each run."""
    if number is None:
        return EDITS
    first = zlib.crc32(definition.file.encode())
    return [EDITS[(first + at) % len(EDITS)] for at in range(number)]


def one_line(exc):
    """Is an error one that a user can be shown?"""
    return isinstance(exc, VirtError) and "\n" not in str(exc).strip()


def _text(definition, report, *_):
    """A kind that we only pass on: nothing to check but that it is XML."""
    ElementTree.fromstring(definition.text)
    report.add("read")


def _model(definition, report, how):
    """Reads and writes a definition whose elements we model; the model."""
    cls = MODELS[definition.kind]
    model = cls.fromstring(definition.text)
    report.add("read")
    written = model.tostring()
    before, after = (ElementTree.fromstring(text) for text in (definition.text, written))
    if same.form(before) != same.form(after):
        raise Failure(f"written otherwise: {same.difference(before, after)}")
    for path in unfaithful(model.copy()):
        report.fail(definition.file, f"{path} is not written as it was read")
    report.add("written")
    if definition.schema():
        how.keep(written, definition.schema(), "")
    return model


def unfaithful(element, path=""):
    """Names of declared properties that are another after they were set to what they are."""
    for name, kind in declarations(type(element)).items():
        value, here = getattr(element, name), f"{path}{name}"
        if isinstance(kind, Child):
            if value:
                yield from unfaithful(value, f"{here}.")
        elif isinstance(kind, Children):
            before = [same.form(item.node) for item in value]
            setattr(element, name, value)
            if [same.form(item.node) for item in getattr(element, name)] != before:
                yield here
            for at, item in enumerate(value):
                yield from unfaithful(item, f"{here}[{at}].")
        elif value is not None:
            before = element.copy()
            setattr(element, name, value)
            others = _values(before) != _values(element)
            if others or getattr(element, name) != value or _shape(before) != _shape(element):
                yield here


def _values(element):
    """What the declared values say."""
    props = (name for name, kind in declarations(type(element)).items() if isinstance(kind, Prop))
    return {name: getattr(element, name) for name in props}


def _shape(element):
    """The tags below and their attributes' names, without units and states, which we
    write anew."""
    return sorted(
        (node.tag, *sorted(set(node.attrib) - {"unit", "state"})) for node in element.need().iter()
    )


def _domain(definition, report, how):
    actual = _model(definition, report, how)
    if actual.name is None or any(word in definition.file for word in WRONG):
        return
    with report.step("unchanged", definition.file):
        host = host_of(actual, how.known)
    if host is None:
        return
    with report.step("unchanged", definition.file):
        try:
            nothing(actual, host)
        except VirtError as exc:
            report.refused("nothing", str(exc))
            return
        report.add("unchanged")
    completed(actual)
    for edit in chosen(definition, how.edits):
        with report.step(f"edit {edit.name}", definition.file):
            written = one_edit(edit, actual, host, report)
            if written and definition.schema():
                how.keep(written, "domain", edit.name)


def host_of(actual, known=()):
    """Caps of a host that runs a guest, made of what its definition says; with the domain
    capabilities of a known one that fits."""
    kind = actual.os.type or ("hvm" if actual.type != "lxc" else "exe")
    kind = {"linux": "xen"}.get(kind, kind)
    arch, machine = actual.os.arch or "x86_64", actual.os.machine
    found = caps.CapsGuest(
        kind, arch, (actual.type,), {None: actual.emulator}, {machine: machine} if machine else {}
    )
    fitting = [one for one in known if (one.virt_type, one.arch) == (actual.type, arch)]
    return caps.Caps(caps.HostCapabilities(arch=arch), (found,), fitting[-1] if fitting else None)


def completed(domain):
    """Fills in what libvirt fills in whenever it takes a definition: with NUMA cells the memory
    is theirs and that of the modules."""
    cells = sum(cell.memory_kib or 0 for cell in domain.cpu.cells)
    modules = [item for item in domain.memory_devices if item.model != "sgx-epc"]
    if cells:
        domain.memory_kib = cells + sum(item.size_kib or 0 for item in modules)
    now = domain.current_memory_kib
    if domain.memory_kib and (now is None or now > domain.memory_kib):
        domain.current_memory_kib = domain.memory_kib
    if domain.memballoon.model == "none":
        domain.current_memory_kib = domain.memory_kib


def amend(actual, host, arguments):
    """(the Domain that an update makes, the changes) of these arguments."""
    spec = guest.parse(actual.name, update=True, **arguments)
    given = GuestInputs()
    own = {f"d{at}": disk for at, disk in enumerate(actual.disks)}
    for wish in spec.disks or ():
        disk = own.get(wish.name)
        if disk is not None:
            wish.empty = not disk.source
            if disk.source:
                given.sources[wish.name] = Source.of_disk(disk)
    wanted = design.amend(spec, actual, host, given)
    return wanted, changes(wanted, actual)


def nothing(actual, host):
    """Raises Failure when an update that asks for nothing changes something."""
    wanted, found = amend(actual, host, {})
    if found:
        raise Failure(f"nothing asked changes {', '.join(change.path for change in found)}")
    if same.form(wanted.node) != same.form(actual.node):
        raise Failure(f"nothing asked: {same.difference(actual.node, wanted.node)}")


def one_edit(edit, actual, host, report):
    """One edit, made twice; the text that would be defined, None where nothing is."""
    arguments = edit.asked(actual)
    if arguments is None:
        return None
    try:
        wanted, found = amend(actual, host, arguments)
    except VirtError as exc:
        if not one_line(exc):
            raise
        report.refused(edit.name, str(exc))
        return None
    before, after, places = actual.node, wanted.node, edit.may_change(actual)
    if same.without(before, places) != same.without(after, places):
        raise Failure(f"changes more: {same.difference(before, after)}")
    if not found and same.form(before) != same.form(after):
        raise Failure(f"is not seen: {same.difference(before, after)}")
    again, left = amend(wanted, host, edit.asked(actual))
    if left:
        raise Failure(f"changes {', '.join(change.path for change in left)} again")
    if same.form(again.node) != same.form(after):
        raise Failure(f"again: {same.difference(after, again.node)}")
    report.add("edits" if found else "edits that were so")
    report.edited(edit.name, bool(found))
    return wanted.tostring() if found else None


def _network(definition, report, how):
    network = _model(definition, report, how)
    with report.step("unchanged", definition.file):
        wishes.network(network, report)


def _pool(definition, report, how):
    pool = _model(definition, report, how)
    with report.step("unchanged", definition.file):
        wishes.pool(pool, report)


def _only_model(definition, report, how):
    _model(definition, report, how)


def _capabilities(definition, report, how):
    del how
    from saltvirt.host.capabilities import guest_caps, host_caps

    caps.parse(definition.text)
    root = ElementTree.fromstring(definition.text)
    host_caps.parse(root.find("host"))
    for node in root.findall("guest"):
        guest_caps.parse(node)
    report.add("read")


def _domain_capabilities(definition, report, how):
    del how
    from saltvirt.host.capabilities import domain_caps

    caps.parse_domain(definition.text)
    domain_caps.parse(ElementTree.fromstring(definition.text))
    report.add("read")


def _pool_capabilities(definition, report, how):
    del how
    from saltvirt.host.capabilities import pool_caps

    pool_caps.parse(definition.text)
    report.add("read")


def _device(definition, report, how):
    del how
    from saltvirt.host.node import devices

    devices.parse(ElementTree.fromstring(definition.text))
    report.add("read")


KINDS = {
    "domain": _domain,
    "network": _network,
    "pool": _pool,
    "volume": _only_model,
    "secret": _only_model,
    "domainsnapshot": _only_model,
    "capabilities": _capabilities,
    "domainCapabilities": _domain_capabilities,
    "storagepoolCapabilities": _pool_capabilities,
    "device": _device,
}
