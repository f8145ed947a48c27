"""Definitions that a local libvirt accepts: QEMU's driver in this process, and the test driver. A
definition is defined, read, written, defined again and read back; some edits are made by the code
of ``virt.update``, each twice. Nothing is started."""

import contextlib
import functools
import re
import tempfile
from xml.etree import ElementTree

import libvirt

from saltvirt.errors import VirtError
from saltvirt.host.domain import lookup
from saltvirt.host.provision import admission, guest_builder, guest_definition, update
from saltvirt.spec import guest
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.network.network import Network
from saltvirt.xml.storage.pool import Pool
from tests.corpus import pure, same, wishes
from tests.corpus.report import Report

NAME = "corpus"
KINDS = ("domain", "network", "pool")
FLAGS = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE


class Driver:
    """The test driver, and how a guest is made one that it may take."""

    virt_type = "test"
    arch = "i686"
    gone = 0
    lost = ("uuid", "devices/emulator")

    def __init__(self, conn):
        self.conn = conn
        self.folder = tempfile.TemporaryDirectory(prefix="corpus-")
        given = {"virt:images": self.folder.name, "virt:lock": f"{self.folder.name}/lock"}
        admission_config = admission.AdmissionConfig.configured(
            given.get, terms=None, overcommit=True
        )
        self.tools = guest_builder.Tools(admission_config=admission_config)

    def changes(self, arguments):
        """Makes an update as `virt.update` does; the paths of what it changed."""
        spec = guest.parse(NAME, update=True, **arguments)
        how = update.UpdateOptions(detach="disks" in arguments)
        done = update.update(self.conn, spec, self.tools, how)
        return [change["path"] for change in done["changes"]]

    def fitted(self, text):
        """The text of a definition for this driver; the kind of guest is all that changes."""
        root = ElementTree.fromstring(text)
        root.set("type", self.virt_type)
        root.attrib.pop("id", None)
        root.find("name").text = NAME
        for node in root.iterfind("os/type"):
            if self.arch and node.get("arch"):
                node.set("arch", self.arch)
        for path in self.lost:
            above, _, tag = path.rpartition("/")
            parent = root.find(above) if above else root
            for node in parent.findall(tag) if parent is not None else ():
                parent.remove(node)
        return ElementTree.tostring(root, encoding="unicode")

    def close(self):
        """Takes the folder away; the connection is its opener's."""
        self.folder.cleanup()


class Qemu(Driver):
    """QEMU's own driver. It has no storage pools, which `virt.update` asks: what it would define
    is made of the driver's own capabilities here."""

    virt_type = "qemu"
    arch = None
    gone = libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
    lost = ("uuid",)

    def changes(self, arguments):
        actual = _model(self.conn)
        wanted, found = pure.amend(actual, guest_definition.caps_of(self.conn, actual), arguments)
        if found:
            lookup.define(self.conn, wanted.tostring())
        return [change.path for change in found]


@functools.cache
def drivers():
    """The drivers here: QEMU's where it can be, and the test driver."""
    found = [Driver(libvirt.open("test:///default"))]
    try:
        from tests.functional.embedded import connection

        found.insert(0, Qemu(connection()))
    except BaseException as exc:  # pytest's own way to skip is no Exception
        if type(exc).__name__ != "Skipped":
            raise
    return found


def check(definition, driver, edits):
    """The Report of a definition at one driver; ``edits``: how many of them."""
    report = Report(f"{definition.kind}, {driver.virt_type} driver")
    if definition.kind == "domain":
        _domain(definition, driver, edits, report)
    elif definition.kind == "network":
        _plain(definition, driver.conn, report, _NETWORK)
    elif definition.kind == "pool":
        _plain(definition, driver.conn, report, _POOL)
    return report


def _domain(definition, driver, edits, report):
    try:
        dom = driver.conn.defineXML(driver.fitted(definition.text))
    except (libvirt.libvirtError, AttributeError):  # a definition without a name
        return
    with contextlib.suppress(VirtError):
        guest_definition.caps_of(driver.conn, _model(driver.conn))
        report.add("defined")
    if not report.counts["defined"]:  # the test driver takes what it says it cannot run
        dom.undefineFlags(driver.gone)
        return
    try:
        with report.step("read back", definition.file):
            _read_back(driver.conn, dom)
            report.add("read back")
        for edit in pure.chosen(definition, edits):
            with report.step(f"update {edit.name}", definition.file):
                _update(edit, driver, report)
    finally:
        dom.undefineFlags(driver.gone)


def _model(conn):
    return Domain.fromstring(conn.lookupByName(NAME).XMLDesc(FLAGS))


def _read_back(conn, dom):
    """What libvirt has of a guest, read and written by us, is the same to libvirt."""
    try:
        conn.defineXML(dom.XMLDesc(FLAGS))
    except libvirt.libvirtError:
        return  # libvirt does not take its own words
    before = dom.XMLDesc(FLAGS)
    conn.defineXML(Domain.fromstring(before).tostring())
    after = dom.XMLDesc(FLAGS)
    if before != after:
        trees = [ElementTree.fromstring(text) for text in (before, after)]
        raise pure.Failure(f"defined otherwise: {same.difference(*trees)}")


def _update(edit, driver, report):
    """Nothing asked changes nothing; the edit changes what it may, and once."""
    actual = _model(driver.conn)
    if found := driver.changes({}):
        raise pure.Failure(f"nothing asked changes {', '.join(found)}")
    arguments = edit.asked(actual)
    if arguments is None or ("disks" in arguments and _media(actual)):
        return
    try:
        found = driver.changes(arguments)
    except VirtError as exc:
        if not pure.one_line(exc):
            raise
        report.refused(edit.name, re.sub(r"'[^']*'|\d+", "…", str(exc)))
        return
    after = _model(driver.conn)
    places = edit.may_change(actual)
    if same.without(actual.node, places) != same.without(after.node, places):
        report.add("libvirt changes more")
    if left := driver.changes(edit.asked(actual)):
        raise pure.Failure(f"changes {', '.join(left)} again")
    report.add("updates")
    if found and not same.form(actual.node) != same.form(after.node):
        raise pure.Failure(f"said to change {', '.join(found)}, and nothing did")


def _media(there):
    """A drive that is named without its medium is emptied."""
    return any(disk.removable_medium for disk in there.disks)


_NETWORK = ("networkDefineXML", "networkLookupByName", Network, wishes.network)
_POOL = ("storagePoolDefineXML", "storagePoolLookupByName", Pool, wishes.pool)


def _plain(definition, conn, report, words):
    """A network or a pool: defined, and a state that says what it is has nothing to do."""
    define, _, model, wish = words
    root = ElementTree.fromstring(definition.text)
    for path in ("name", "uuid"):
        node = root.find(path)
        if node is not None and path == "uuid":
            root.remove(node)
        elif node is not None:
            node.text = NAME
    try:
        made = getattr(conn, define)(ElementTree.tostring(root, encoding="unicode"))
    except libvirt.libvirtError:
        return
    report.add("defined")
    try:
        with report.step("read back", definition.file):
            before = made.XMLDesc(0)
            there = model.fromstring(before)
            getattr(conn, define)(there.tostring())
            if made.XMLDesc(0) != before:
                raise pure.Failure("defined otherwise")
            report.add("read back")
            counted = Report(definition.kind)
            wish(there, counted)
            report.add("updates", counted.counts["unchanged"] + counted.counts["edits"])
    finally:
        made.undefine()
