"""Refusals and empty answers of a hypervisor's modules for backups, agents and high availability,
loaded by Salt's loader, with libvirt's test driver."""

import contextlib
import functools
import json
import os
import re
import tempfile

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.answers import calls
from saltvirt.answers.created import CreatedGuest
from saltvirt.backup.export import handlers, live_restores, replaced_guest, request, restore
from saltvirt.backup.model.answers import (
    BackupPlan,
    BackupReader,
    BackupResult,
    GuestInspection,
    InspectedDisk,
    PlannedDisk,
    ServedDisk,
    Serving,
    ShownBackup,
)
from saltvirt.backup.model.pins import BackupPin
from saltvirt.backup.target import handlers as target_handlers
from saltvirt.backup.target import show
from saltvirt.fleet.minion import client
from saltvirt.ha.fencing import agents
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from tests.functional import asking
from tests.functional.agent import real  # noqa: F401 - a fixture
from tests.functional.backed_up import UUID, Guest
from tests.functional.conftest import load_with_folders

IDENT = "000001-20261126T160000Z-0123abcd"
FENCE = """#!/bin/sh
cat > {folder}/told
exit $(cat {folder}/code)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return load_with_folders(tmp_path_factory.mktemp("host"))


@pytest.fixture
def virt(conn, loaded, tmp_path, monkeypatch):
    monkeypatch.setattr(live_restores, "FOLDER", str(tmp_path / "stands"))
    monkeypatch.setattr(replaced_guest, "FOLDER", str(tmp_path / "aside"))
    with tempfile.TemporaryDirectory(prefix="sv-") as run:
        monkeypatch.setattr(request, "RUN", run)
        monkeypatch.setattr(request, "JOURNALS", str(tmp_path / "journals"))
        yield loaded


@pytest.mark.parametrize(("verb", "more"), [
    ("backup_look", {}), ("backup_over", {}), ("backup_confirm", {"test": True}),
    ("backup_confirm", {}), ("backup_undo", {}), ("backup_wish", {"setting": "no"}),
    ("exec", {"cmd": "true"}), ("get", {"remote": "/x", "local": "/nonexistent/x"}),
])  # fmt: skip
def test_a_guest_that_is_not_there_is_named(virt, verb, more):
    with pytest.raises(errors.VirtError, match=r"nobody|/nonexistent"):
        asking.answer(virt, f"virt.{verb}", "nobody", **more)


@pytest.mark.parametrize("verb", [
    "backup_look", "backup_over", "backup_confirm", "backup_undo", "backup_standing",
])  # fmt: skip
@pytest.mark.parametrize("name", ["", "..", "a\nb"])
def test_what_is_no_name_is_refused(virt, verb, name):
    with pytest.raises(errors.InvalidInput, match="cannot be a guest's name"):
        asking.answer(virt, f"virt.{verb}", name)


def test_a_guest_that_no_backup_has_replaced(virt):
    told = asking.answer(virt, "virt.backup_over", "test")
    assert (told["active"], told["unconfirmed"]) == (True, None)
    [why] = told["reasons"]
    assert why == "test is running: stop it first, or use stop=True to power it off"
    assert asking.answer(virt, "virt.backup_over", "test", stop=True)["reasons"] == []
    for verb in ("backup_confirm", "backup_undo"):
        with pytest.raises(errors.NotFound, match=r"test on .* has no in-place restore"):
            virt[f"virt.{verb}"]("test")
    assert asking.answer(virt, "virt.backup_standing", "test")["state"] == "complete"
    assert asking.answer(virt, "virt.backup_standing", "nobody")["state"] == "missing"


def test_of_a_guest_that_had_no_disk_of_its_own_nothing_is_deleted(virt, conn):
    dom = conn.lookupByName("test")
    text = re.sub("<disk.*?</disk>", "", dom.XMLDesc(0), flags=re.S)
    replaced_guest.store(
        replaced_guest.ReplacedGuest(dom.UUIDString(), "test", IDENT, text, ("/guest/diskimage1",))
    )
    nothing = {"delete": [], "keep": {}}
    for test in (True, False):
        told = virt["virt.backup_confirm"]("test", test=test)
        assert {key: told[key] for key in nothing} == nothing
        assert bool([*replaced_guest.load_all()]) is test


def test_a_guest_without_a_disk_is_not_backed_up_here(virt, conn, tmp_path):
    conn.defineXML("<domain type='test'><name>diskless</name><memory>1024</memory>"
                   "<os><type>hvm</type></os></domain>")  # fmt: skip
    with pytest.raises(errors.InvalidInput, match="diskless has no disk to back up"):
        virt["virt.backup"]("diskless", str(tmp_path))


class Parts:
    """The calls and the function that ``virt.backup`` and ``virt.backup_bring`` work with, and what
    they are told. answers: verb to what it answers, or fails with."""

    def __init__(self, answers):
        self.answers, self.called = answers, []

    def answer(self, verb, *arguments, **named):
        self.called.append((verb, arguments, named))
        if isinstance(self.answers[verb], BaseException):
            raise self.answers[verb]
        return self.answers[verb]


@pytest.fixture
def parts(virt, monkeypatch):
    disk = ServedDisk("vda", 7, "file /a", "vda", reason="the first")
    created = CreatedGuest(name="web1", disks=())
    answers = {
        "backup_look": GuestInspection(
            UUID, False, (InspectedDisk("vda", 7, "file /a", "raw"),), ("a", "b")
        ),
        "backup_plan": BackupPlan(
            IDENT, (PlannedDisk("vda", reason="the first"),), ("b",), reader="PEM"
        ),
        "backup_begin": Serving(UUID, "hv1", 1, "crash", "<domain/>", (disk,), "PEM"),
        "backup_pull": BackupResult(IDENT, 8, 7, ("c",)), "backup_reader": BackupReader("PEM"),
        "backup_show": ShownBackup(IDENT, "web1", "hv1", 1, "<domain/>", (), "PEM"),
        "backup_restore": created,
    }  # fmt: skip
    found = Parts({verb: answer.to_answer() for verb, answer in answers.items()})
    found.answers |= {"backup_hide": True, "backup_end": {"reason": None, "leftovers": []}}
    monkeypatch.setattr(
        calls, "answer",
        lambda _host, function, told: found.answer(function.removeprefix("virt."), told),
    )  # fmt: skip
    functions = virt["virt.backup"].__globals__["__salt__"]
    for verb in ("virt.backup", "virt.backup_bring"):
        monkeypatch.setitem(virt[verb].__globals__, "__salt__", Functions(functions, found))
    return found


class Functions(dict):
    """Those of the minion, with the end of a backup by the parts."""

    def __init__(self, functions, parts):
        super().__init__()
        self.functions, self.parts = functions, parts

    def __getitem__(self, name):
        if name == "virt.backup_end":
            return functools.partial(self.parts.answer, "backup_end")
        return self.functions[name]


@pytest.mark.parametrize(("end", "why"), [
    ({"reason": None, "leftovers": []}, "b1: it cannot be read"),
    ({"reason": "the guest was stopped", "leftovers": []},
     "b1: it cannot be read; the guest was stopped"),
    ({"reason": "it cannot be read", "leftovers": []}, "b1: it cannot be read"),
    (errors.OperationFailed("libvirt does not end it"),
     "b1: it cannot be read; libvirt does not end it"),
])  # fmt: skip
@pytest.mark.parametrize("verb", ["backup_begin", "backup_pull"])
def test_what_fails_in_the_middle_is_ended_and_why_is_said(virt, parts, tmp_path, verb, end, why):
    parts.answers |= {verb: errors.OperationFailed("b1: it cannot be read"), "backup_end": end}
    with pytest.raises(errors.OperationFailed) as found:
        virt["virt.backup"]("test", str(tmp_path))
    assert found.value.text == why
    assert parts.called[-1] == ("backup_end", ("test", IDENT), {})


def test_what_is_interrupted_is_ended(virt, parts, tmp_path):
    parts.answers["backup_pull"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        virt["virt.backup"]("test", str(tmp_path))
    assert parts.called[-1] == ("backup_end", ("test", IDENT), {})


def test_a_backup_that_is_there_is_no_failure_whatever_becomes_of_its_end(virt, parts, tmp_path):
    parts.answers["backup_end"] = errors.OperationFailed("libvirt does not end it")
    made = virt["virt.backup"]("test", str(tmp_path))
    assert (made["backup_id"], made["leftovers"]) == (IDENT, ["libvirt does not end it"])
    assert parts.called[-1] == (
        "backup_end",
        ("test", IDENT),
        {"good": True, "needed": ["a", "c"]},
    )
    assert [verb for verb, *_ in parts.called].count("backup_end") == 1


@pytest.fixture
def kept(tmp_path):
    """A folder with a backup of web1."""
    guest = Guest(tmp_path / "kept")
    guest.back_up()
    return guest.target.folder.root


def test_a_guest_that_was_made_is_no_failure_whatever_becomes_of_what_was_shown(virt, parts, kept):
    parts.answers["backup_hide"] = errors.OperationFailed("it cannot be hidden")
    made = virt["virt.backup_bring"]("web1", kept, new="web2")
    assert made["name"] == "web1" and parts.called[-1] == ("backup_hide", ({"reader": "PEM"},), {})


@pytest.mark.parametrize(("given", "why"), [
    ({"new": "web2", "in_place": True}, "new=NAME cannot be combined with in_place or disk"),
    ({"new": "web2", "disk": "vda"}, "new=NAME cannot be combined with in_place or disk"),
    ({"stop": True}, "stop=True requires in_place=True"),
])  # fmt: skip
def test_what_makes_no_sense_together_is_refused_before_anything_is_shown(
    virt, parts, kept, given, why
):
    for test in (True, False):
        with pytest.raises(errors.InvalidInput, match=why):
            virt["virt.backup_bring"]("web1", kept, test=test, **given)
    assert parts.called == []


@pytest.mark.parametrize("verb", ["backup_show", "backup_restore"])
def test_why_no_guest_was_made_is_said_and_nothing_stays_shown(virt, parts, kept, verb):
    parts.answers |= {verb: errors.OperationFailed("there is no room"),
                      "backup_hide": errors.OperationFailed("it cannot be hidden")}  # fmt: skip
    with pytest.raises(errors.OperationFailed, match="there is no room"):
        virt["virt.backup_bring"]("web1", kept)
    assert parts.called[-1] == ("backup_hide", ({"reader": "PEM"},), {})


def test_the_end_of_a_backup_that_was_not_begun(virt):
    assert virt["virt.backup_end"]("test", IDENT) == {"reason": None, "leftovers": []}
    assert virt["virt.backup_end"]("test", 7)["leftovers"] == [], "Salt reads some names as numbers"


@pytest.mark.parametrize("ident", [[IDENT], {"backup_id": IDENT}, ""])
def test_what_a_backup_is_called_is_a_text(virt, ident):
    with pytest.raises(errors.InvalidInput, match="backup_id "):
        virt["virt.backup_end"]("test", ident)
    with pytest.raises(errors.InvalidInput, match="backup_id "):
        asking.answer(virt, "virt.backup_begin", "test", ident, [], "PEM")


@pytest.mark.parametrize(("disks", "why"), [
    ("vda", "disks is not a list"), ([7], "disks"), ([{"source": "vda"}], "target is missing"),
])  # fmt: skip
def test_disks_that_are_none_are_not_shown(virt, disks, why):
    with pytest.raises(errors.InvalidInput, match=why):
        asking.answer(virt, "virt.backup_begin", "test", IDENT, disks, "PEM")
    assert os.listdir(request.RUN) == []


def test_what_a_backup_that_died_has_left_is_among_the_leftovers(virt, conn, tmp_path):
    dom, scratch = conn.lookupByName("test"), tmp_path / "scratch"
    scratch.mkdir()
    with request.BackupJournal("test").lock() as journal:
        journal.write(request.BackupSession("test", dom.UUIDString(), IDENT, str(scratch), False))
        assert "backups" not in asking.answer(virt, "virt.leftovers"), "its process is at work"
    assert asking.answer(virt, "virt.leftovers")["backups"] == ["test"]
    assert virt["virt.backup_sweep"]() == ["test"]
    assert not scratch.exists() and "backups" not in asking.answer(virt, "virt.leftovers")


def test_what_was_shown_to_nobody_is_not_hidden(virt):
    assert asking.answer(virt, "virt.backup_hide", "a certificate") is False
    with pytest.raises(errors.InvalidInput, match="reader"):
        asking.answer(virt, "virt.backup_hide", ["a certificate"])


def test_a_target_on_whose_backups_nobody_stands(virt, tmp_path):
    folder = tmp_path / "target"
    folder.mkdir(mode=0o700)
    assert asking.answer(virt, "virt.backup_stands", str(folder)) == []
    stand = BackupPin("web1", "hv1")
    given = UUID, IDENT, stand.guest, stand.host
    assert asking.answer(virt, "virt.backup_let_go", str(folder), *given) is False
    assert [*folder.rglob("stands.json")] == []
    with pytest.raises(errors.VirtError, match="not mounted"):
        asking.answer(virt, "virt.backup_let_go", str(folder), *given, mounted=True)


def test_a_disk_that_is_no_text_uses_up_no_key(virt, tmp_path, monkeypatch):
    readers = str(tmp_path / "readers")
    monkeypatch.setattr(target_handlers, "ONE_TIME_KEYS", readers)
    reader = asking.answer(virt, "virt.backup_reader", once=True)["authority"]
    shown = ShownBackup(IDENT, "web1", "hv1", 1, "<domain/>", (), reader).to_answer()
    for verb in ("backup_disk", "backup_restore"):
        with pytest.raises(errors.InvalidInput, match="disk"):
            asking.answer(
                virt, f"virt.{verb}", name="web1", shown=shown, disk=["vda"], reader=reader
            )
    assert own_pair.take(readers, reader, "reader").authority == reader


@pytest.mark.parametrize("accepted", [True, False])
def test_a_restore_says_that_the_master_did_not_accept_the_key(virt, monkeypatch, accepted):
    handed = []

    def hand_in(_functions, name, key):
        handed.append((name, key))
        return accepted

    made = CreatedGuest(name="web1", pub_key="KEY", disks=(), warnings=("one",))
    monkeypatch.setattr(client, "submit_key", hand_in)
    monkeypatch.setattr(restore.RestoreBuilder, "run", lambda _self: made)
    monkeypatch.setattr(handlers, "reader_pair", lambda *_: contextlib.nullcontext(("", "")))
    told = ShownBackup(IDENT, "web1", "hv1", 1, "<domain/>", (), "PEM").to_answer()
    found = asking.answer(virt, "virt.backup_restore", "web1", told)
    assert handed == [("web1", "KEY")]
    first, *more = found["warnings"]
    assert first == "one" and len(more) == (not accepted)
    assert all(one.startswith("the master has not accepted the key of web1: ") for one in more)


def test_since_when_somebody_stands_on_what_is_shown_is_written_down(virt, tmp_path, monkeypatch):
    asked = []

    def shown(_library, request, host):
        asked.append(request)
        return ShownBackup(IDENT, "web1", host, 1, "<domain/>", (), "")

    monkeypatch.setattr(show, "show", shown)
    folder = tmp_path / "target"
    folder.mkdir(mode=0o700)
    reader = own_pair.generate("hv1", certs.SERVER).authority
    given = {"pin": {"guest": "web2", "host": "hv1"}, "reader": reader}
    asking.answer(virt, "virt.backup_show", str(folder), "u", "latest", **given)
    [stand] = [one.pin for one in asked]
    assert (stand.guest, stand.host) == ("web2", "hv1")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", stand.since)
    for wrong in ({"guest": "", "host": "hv1"}, {"guest": "web2"}, ["web2"]):
        with pytest.raises(errors.InvalidInput):
            asking.answer(
                virt, "virt.backup_show", str(folder), "u", "latest", pin=wrong, reader=reader
            )
    assert len(asked) == 1


def test_where_this_host_shows_disks():
    def configured(**virt):
        return request.load_config(lambda key, default=None: virt.get(key, default), "hv1")

    pool = configured(**{"virt:images": "a-pool", "virt:backup:port": 7})
    assert pool.scratch == "/srv/salt-images/_backup" and (pool.host, pool.port) == ("hv1", 7)
    assert configured(**{"virt:images": "/images"}).scratch == "/images/_backup"


@pytest.mark.parametrize("path", [None, 7, "", "a\0b", ["/x"]])
def test_what_is_no_path_is_refused(virt, path):
    for verb, named in (("put", {"remote": path, "local": "/etc/hostname"}),
                        ("get", {"remote": path, "local": "/nonexistent/x"}),
                        ("put", {"local": path, "remote": "/x"})):  # fmt: skip
        with pytest.raises(errors.InvalidInput, match="must be the path of a file, not "):
            virt[f"virt.{verb}"]("test", **named)


def test_without_an_agent_nothing_is_done_in_a_guest(virt, tmp_path):
    here, new = tmp_path / "here", tmp_path / "new"
    here.write_text("x")
    for verb, more in (("exec", {"cmd": "true"}), ("put", {"local": str(here), "remote": "/x"}),
                       ("get", {"remote": "/x", "local": str(new)})):  # fmt: skip
        with pytest.raises(errors.VirtError, match="agent"):
            virt[f"virt.{verb}"]("test", **more)
    assert not new.exists() and here.read_text() == "x"
    with pytest.raises(errors.VirtError, match="gone"):
        virt["virt.put"]("test", local=str(tmp_path / "gone"), remote="/x")


def test_what_an_agent_does_for_a_host(virt, real, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setitem(virt["virt.exec"].__globals__, "_agent", lambda _conn, _name: real.agent)
    said = virt["virt.exec"]("test", "echo \"$A\"; printf '\\033[0mx' >&2; exit 3", shell=True,
                             env={"A": "b c"})  # fmt: skip
    assert (said["stdout"], said["exit_code"], said["has_ended"]) == ("b c\n", 3, True)
    assert "\033" not in said["stderr"] and "x" in said["stderr"]
    raw = virt["virt.exec"]("test", ["printf", "%b", "\\0033"], base64=True)
    assert raw["stdout"] == "Gw=="
    here, there, back = tmp_path / "here", tmp_path / "there", tmp_path / "back"
    here.write_bytes(bytes(range(256)) * 2000)
    assert virt["virt.put"]("test", str(here), str(there), mode="0640") == 512_000
    assert there.read_bytes() == here.read_bytes() and there.stat().st_mode & 0o777 == 0o640
    assert virt["virt.get"]("test", str(there), str(back)) == 512_000
    assert back.read_bytes() == here.read_bytes() and back.stat().st_mode & 0o777 == 0o600
    with pytest.raises(errors.AlreadyExists):
        virt["virt.get"]("test", str(there), str(back))
    with pytest.raises(errors.InvalidInput, match="larger"):
        virt["virt.get"]("test", str(there), str(tmp_path / "less"), max_size="1KiB")
    assert not (tmp_path / "less").exists()


# -- high availability's agent -----------------------------------------------------------------


@pytest.fixture
def fence(tmp_path, monkeypatch):
    """code: what the agent ends with. told: what it was told."""
    monkeypatch.setattr(agents, "PATH", f"{tmp_path}:{agents.PATH}")
    path = tmp_path / "fence_fake"
    path.write_text(FENCE.format(folder=tmp_path))
    path.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(("action", "code", "state"), [
    ("status", 0, "on"), ("status", 2, "off"), ("off", 2, "timed out"), ("off", 0, "on"),
    ("status", 1, "timed out"), ("off", 1, "timed out"),
])  # fmt: skip
def test_what_a_fence_agent_says_is_told_and_its_password_is_not(virt, fence, action, code, state):
    (fence / "code").write_text(str(code))
    secret = fence / "password"
    secret.write_text("secret1\n")
    secret.chmod(0o600)
    given = ("fence_fake", {"ip": "::1"}, str(secret))
    said = asking.answer(virt, "virt.ha_fence", *given, action=action)
    assert said["state"] == state and "secret1" not in json.dumps(said)
    assert "password=secret1" in (fence / "told").read_text()


def test_what_no_fence_agent_is_told(virt, fence):
    with pytest.raises(errors.InvalidInput, match="action must be status or off"):
        asking.answer(virt, "virt.ha_fence", "fence_fake", {"ip": "::1"}, action="reboot")
    with pytest.raises(errors.OperationFailed, match="fence_none is not installed: install"):
        asking.answer(virt, "virt.ha_fence", "fence_none", {"ip": "::1"})
    with pytest.raises(errors.InvalidInput, match="password"):
        asking.answer(virt, "virt.ha_fence", "fence_fake", {"password": "secret1"})
    assert not (fence / "told").exists()


def test_what_the_agent_would_get_is_only_told(virt):
    told = {"host": "hv1", "members": {"hv1": "10.0.0.1", "hv2": "10.0.0.2"}, "masters": ["m"]}
    said = virt["virt.ha_settings"](told, test=True)
    assert said["comment"] == "The agent would be changed" and "/etc/salt-virt/ha.json" in str(said)
    with pytest.raises(errors.InvalidInput, match="members"):
        virt["virt.ha_settings"]({"host": "hv1"})
    assert virt["virt.ha_install"](test=True)["comment"] == "The agent would be changed"
    assert virt["virt.ha_kept"]("web1") == ""
