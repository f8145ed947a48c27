"""What is removed with a domain's definition, and the libvirt flags for it."""

import calendar
import os
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.domain import metadata, purge, removal
from saltvirt.host.migration import facts
from saltvirt.host.storage import files, references, usage
from saltvirt.xml.domain.metadata import GuestRecord
from tests.functional import embedded
from tests.functional.host.storage.test_usage import create, disk, place  # noqa: F401

LOADER = "<loader type='pflash' readonly='yes'>/x</loader>"
OLD = LOADER + "<nvram>{}</nvram>"
NEW = LOADER + "<nvram type='file'><source file='{}'/></nvram>"
KEEP, GOES = "KEEP_NVRAM", "NVRAM"


class Asked:
    """A virDomain that keeps with which flags it was to be undefined. refused: the code with which
    the first of these ways are refused, as an older libvirt would; gone: what is asked is done."""

    def __init__(self, dom, refused=None, ways=0, gone=True):
        self.dom, self.refused, self.ways, self.gone = dom, refused, ways, gone
        self.flags = []

    def __getattr__(self, name):
        return getattr(self.dom, name)

    def undefineFlags(self, flags):
        self.flags.append(flags)
        if len(self.flags) <= self.ways:
            exc = libvirt.libvirtError("refused")
            exc.err = (self.refused, 0, "refused", 0, "", "", "", 0, 0)
            raise exc
        if self.gone:
            self.dom.undefine()


def flags(*names):
    return sum(getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{name}") for name in names)


BASIC = ("MANAGED_SAVE", "SNAPSHOTS_METADATA")
EVERYTHING = [
    flags(*BASIC, GOES, "CHECKPOINTS_METADATA", "TPM"),
    flags(*BASIC, GOES, "CHECKPOINTS_METADATA"),
    flags(*BASIC, GOES),
    flags(*BASIC),
    0,
]


@pytest.mark.parametrize("code", removal._FLAGS_UNKNOWN)
@pytest.mark.parametrize(("everything", "ways"), [(True, EVERYTHING), (False, [flags(GOES), 0])])
def test_an_older_libvirt_is_asked_for_less_and_less(place, code, everything, ways):  # noqa: F811
    for number in range(len(ways)):
        dom = Asked(place.guest(), getattr(libvirt, code), number)
        assert removal.undefine(place.conn, dom, everything=everything) is True
        assert dom.flags == ways[: number + 1]


def test_a_flag_that_this_binding_does_not_know_is_no_flag():
    assert removal._flags("NVRAM", "OF_A_LATER_LIBVIRT") == flags("NVRAM")


def test_undefine_asks_for_the_definition_alone_unless_told(place):  # noqa: F811
    dom = Asked(place.guest())
    removal.undefine(place.conn, dom)
    assert dom.flags == [flags(GOES)]


@pytest.mark.parametrize(
    ("code", "ways", "asked"),
    [("VIR_ERR_OPERATION_INVALID", 1, 1), ("VIR_ERR_NO_SUPPORT", 9, len(EVERYTHING))],
)
def test_what_libvirt_refuses_is_said(place, code, ways, asked):  # noqa: F811
    dom = Asked(place.guest(), getattr(libvirt, code), ways)
    with pytest.raises(errors.VirtError, match="undefine web1: refused"):
        removal.undefine(place.conn, dom, everything=True)
    assert len(dom.flags) == asked


def test_a_running_domain_is_not_undefined(place):  # noqa: F811
    dom = Asked(place.guest())
    dom.create()
    with pytest.raises(errors.OperationFailed, match=r"cannot undefine web1: it is running"):
        removal.undefine(place.conn, dom)
    assert dom.flags == []
    dom.destroy()


def test_a_domain_that_is_still_listed_is_not_gone(place):  # noqa: F811
    with pytest.raises(errors.OperationFailed, match=r"web1: libvirt still lists it"):
        removal.undefine(place.conn, Asked(place.guest(), gone=False))


@pytest.fixture(autouse=True)
def own_folder(request, monkeypatch):
    """The folder in which libvirt keeps the variables of this host's guests."""
    if "place" in request.fixturenames:
        folder = request.getfixturevalue("place").root
        monkeypatch.setattr(files, "_VARIABLES", str(folder))


def said(place, dom):  # noqa: F811
    with removal.variables(place.conn, dom) as what:
        return what


@pytest.mark.parametrize("os", [OLD, NEW], ids=["as text", "as a source"])
@pytest.mark.parametrize("path", ["OVMF_VARS_4M.fd", "web2_VARS.fd", "elsewhere/web1_VARS.fd"])
def test_variables_that_are_not_proven_to_be_the_guests_own_stay(place, path, os):  # noqa: F811
    """A definition may name the template of the distribution, without which no guest with UEFI can
    be made, or the variables of a guest that is not defined at present."""
    (place.root / "elsewhere").mkdir()
    file = create(place.root / path)
    dom = Asked(place.guest(os=os.format(file)))
    plan = purge.plan(place.conn, dom.dom)
    why = f"firmware variables in a file that is not proven to belong to {dom.name()}"
    assert (plan.variables, plan.keep) == ([], {str(file): why})
    assert removal.undefine(place.conn, dom, everything=True)
    assert dom.flags[0] & flags(GOES, KEEP) == flags(KEEP)


def test_a_link_to_a_template_is_not_the_guests_own_file(place):  # noqa: F811
    template = create(place.root / "template.fd")
    link = place.root / "web1_VARS.fd"
    link.symlink_to(template)
    assert said(place, place.guest(os=OLD.format(link))) == KEEP


def test_a_purge_names_the_variables_that_go(place):  # noqa: F811
    own = create(place.root / "web1_VARS.fd")
    dom = place.guest(os=OLD.format(own))
    for disks in (purge.OWN_DISKS, purge.NO_DISKS):
        plan = purge.plan(place.conn, dom, disks=disks)
        assert (plan.variables, plan.keep) == ([str(own)], {})


@pytest.mark.parametrize("os", [OLD, NEW], ids=["as text", "as a source"])
def test_the_variables_of_one_guest_go_with_it(place, os):  # noqa: F811
    own, others = create(place.root / "web1_VARS.fd"), create(place.root / "web2_VARS.fd")
    dom = place.guest(os=os.format(own))
    assert said(place, dom) == GOES
    place.guest(os=os.format(others), name="web2")
    assert said(place, dom) == GOES
    place.guest(os=os.format(own), name="web3")
    assert said(place, dom) == KEEP


def test_variables_that_no_definition_names_stay_where_other_hosts_have_them(
    place,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    """An older libvirt takes the file away by the guest's name: from under the guest that runs on
    another host."""
    monkeypatch.setattr(files, "_VARIABLES", str(tmp_path))
    monkeypatch.setattr(usage.sharing, "sharing_reason", lambda path: "nfs4")
    dom = place.guest()
    dom = place.conn.defineXML(dom.XMLDesc().replace("<os>", "<os firmware='efi'>", 1))
    assert said(place, dom) == GOES, "it has none"
    (tmp_path / "web1_VARS.fd").touch()
    assert said(place, dom) == KEEP


@pytest.mark.parametrize("by", ["its name", "an image on it"])
def test_of_two_files_of_variables_neither_goes_while_one_is_used(place, by):  # noqa: F811
    """The running definition names one, the one of the next start another."""
    first, second = create(place.root / "web1_VARS.fd"), create(place.root / "web1_VARS.qcow2")
    dom = place.guest(os=OLD.format(first))
    dom.create()
    own = f"<uuid>{dom.UUIDString()}</uuid>"
    place.guest(os=OLD.format(second), more=own)
    assert len({*usage.domain_xmls(dom)}) == 2
    assert said(place, dom) == GOES
    for path in (first, second):
        used = path if by == "its name" else create(place.above, path, "qcow2")
        other = place.guest(disk(used), name="web2")
        assert said(place, dom) == KEEP
        other.undefine()
    dom.destroy()


@pytest.mark.parametrize(("worker", "written", "what"), [
    ("0:0:0", "2026-11-27T11:59:59Z", KEEP), ("0:0:0", "2026-11-27T12:00:00Z", GOES),
    (None, "2026-11-27T11:59:59Z", GOES),
])  # fmt: skip
def test_variables_from_before_a_guest_that_was_never_whole_stay(
    place,  # noqa: F811
    worker,
    written,
    what,
):
    """They are of an earlier guest of its name: the undo of a restore, or virt.repair, would
    delete its boot entries and keys."""
    own = create(place.root / "web1_VARS.fd")
    seconds = calendar.timegm(time.strptime(written, "%Y-%m-%dT%H:%M:%SZ"))
    os.utime(own, (seconds, seconds))
    dom = place.guest(os=OLD.format(own))
    record = GuestRecord(version=1, created="2026-11-27T12:00:00Z", creating=worker)
    metadata.write(dom, record)
    assert said(place, dom) == what
    going, staying = removal.variables_plan(place.conn, dom)
    if what == KEEP:
        assert (going, staying) == (
            [],
            {str(own): "it is older than web1, whose creation never ended"},
        )
    else:
        assert (going, staying) == ([str(own)], {})


def test_variables_that_are_not_there_are_in_nobodys_way(place):  # noqa: F811
    """Also where others name them: nothing is deleted."""
    gone = OLD.format(place.root / "gone.fd")
    dom = place.guest(os=gone)
    place.guest(os=gone, name="web2")
    assert said(place, dom) == GOES


@pytest.mark.parametrize(
    ("os", "what"),
    [
        ("", GOES),
        (LOADER + "<nvram template='/t'/>", GOES),
        (LOADER + "<nvram type='block'><source dev='/dev/null'/></nvram>", KEEP),
    ],
    ids=["none", "not yet chosen", "no file"],
)
def test_where_no_file_is_named_only_a_device_stays(place, os, what):  # noqa: F811
    assert said(place, place.guest(os=os)) == what


def test_what_cannot_be_known_keeps_only_what_is_there(place):  # noqa: F811
    own = create(place.root / "web1_VARS.fd")
    place.guest(disk(place.root / "other" / "gone" / "x.qcow2"), name="web2")
    assert said(place, place.guest(os=OLD.format(own))) == KEEP
    assert said(place, place.guest(name="web3")) == GOES


def test_a_pool_that_is_not_started_keeps_no_variables(place):  # noqa: F811
    """No image is based on them that no guest names."""
    own = create(place.root / "web1_VARS.fd")
    place.pool("away", place.root / "away", kind="netfs")
    assert said(place, place.guest(os=OLD.format(own))) == GOES


@pytest.mark.parametrize(
    ("os", "where"),
    [(OLD, "/v/own.fd"), (NEW, "/v/own.fd"), (LOADER, None),
     (LOADER + "<nvram type='block'><source dev='/dev/null'/></nvram>", "")],
)  # fmt: skip
def test_where_the_variables_are_is_known_to_all_that_ask(place, os, where):  # noqa: F811
    dom = place.guest(os=os.format("/v/own.fd"))
    root = ElementTree.fromstring(dom.XMLDesc())
    assert facts.guest(dom).nvram == where
    device = {"/dev/null"} if where == "" else set()
    assert files.paths(root) == ({where} if where else device)
    assert {path for path, _ in files.named_paths(place.conn, root)} == files.paths(root)
    assert (
        references.StorageReference(path=where, format="raw") in references.references_of(root)
    ) == bool(where)


def test_a_disk_in_a_pool_is_known_by_the_path_of_its_volume(place):  # noqa: F811
    pool = place.pool("there", place.base.parent, start=True)
    pool.createXML("<volume><name>v</name><capacity>1024</capacity></volume>", 0)
    source = "<source pool='there' volume='{}'/><target dev='{}'/>"
    devices = "".join(
        f"<disk type='volume'>{source.format(volume, target)}{more}</disk>"
        for volume, target, more in (("v", "vda", ""), ("none", "vdb", ""), ("v", "vdc", ""))
    )
    dom = place.guest(devices)
    root = ElementTree.fromstring(dom.XMLDesc())
    path = f"{place.base.parent}/v"
    assert {one for one, _ in files.named_paths(place.conn, root)} == {path}
    assert files.writable(place.conn, root) == {path}
    for one in root.iterfind("devices/disk"):
        ElementTree.SubElement(one, "readonly")
    assert files.writable(place.conn, root) == set()
    assert files.volume_path(place.conn, "there", None) is None


HALF = (
    "<metadata><s:guest xmlns:s='https://saltproject.io/xmlns/salt-virt/1' version='1' "
    "creating='1:1:dead'/></metadata>"
)
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'>{}</backend></tpm>"


@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    ("source", "state"), [("", "/var/lib/libvirt/swtpm/{}"), ("<source path='/t'/>", "/t")]
)
def test_the_state_of_a_tpm_goes_with_all_else_where_no_other_host_has_it(
    place,  # noqa: F811
    monkeypatch,
    everything,
    shared,
    source,
    state,
):
    dom = Asked(place.guest(TPM.format("")))
    text = dom.XMLDesc().replace("version='2.0'/>", f"version='2.0'>{source}</backend>")
    path = state.format(dom.UUIDString()) if shared else None
    monkeypatch.setattr(usage, "domain_xmls", lambda dom: [text])
    monkeypatch.setattr(usage, "others_may_have", lambda conn, one: one == path and "nfs4")
    removal.undefine(place.conn, dom, everything=everything)
    kept = "KEEP_TPM" if shared or source or not everything else "TPM"
    assert dom.flags[0] & flags("TPM", "KEEP_TPM") == flags(kept)


def test_of_two_places_of_a_tpm_one_that_other_hosts_have_is_enough(place, monkeypatch):  # noqa: F811
    """The running guest's, and that of its next start."""
    dom = Asked(place.guest(TPM.format("")))
    moved = dom.XMLDesc().replace("version='2.0'/>", "version='2.0'><source path='/t'/></backend>")
    monkeypatch.setattr(usage, "domain_xmls", lambda dom: [dom.XMLDesc(), moved])
    monkeypatch.setattr(usage, "others_may_have", lambda conn, path: path == "/t" and "nfs4")
    removal.undefine(place.conn, dom, everything=True)
    assert dom.flags[0] & flags("TPM", "KEEP_TPM") == flags("KEEP_TPM")


def test_the_state_of_a_tpm_is_not_of_a_guest_that_was_never_whole(place, monkeypatch):  # noqa: F811
    """A restore that failed: no backup has the state, and the guest is to be restored again."""
    monkeypatch.setattr(usage, "others_may_have", lambda conn, path: None)
    dom = Asked(place.guest(TPM.format(""), more=HALF))
    removal.undefine(place.conn, dom, everything=True)
    assert dom.flags[0] & flags("TPM", "KEEP_TPM") == flags("KEEP_TPM")


def test_libvirt_leaves_the_state_of_a_tpm_where_it_is_told_to(monkeypatch):
    """It takes it away with the definition otherwise, and with it the keys of the guest's disks."""
    conn = embedded.connection()
    monkeypatch.setattr(usage, "others_may_have", lambda conn, path: None)
    folder = Path(conn.getURI().partition("root=")[2], "lib/swtpm")
    text = (
        "<domain type='qemu'><name>tpm</name><memory>65536</memory><os><type>hvm</type></os>"
        f"<devices>{TPM.format('')}</devices></domain>"
    )
    for everything in (False, True):
        dom = conn.defineXML(text)
        state = folder / dom.UUIDString() / "tpm2/tpm2-00.permall"
        state.parent.mkdir(parents=True, exist_ok=True)
        state.touch()
        assert removal.undefine(conn, dom, everything=everything)
        assert state.exists() is not everything
