"""The ext_pillars, the engine and the grain with hostile requests, invalid configuration and
damaged files: a valid answer or one error in one line, and valid requests are still answered."""

import json
import os
import pathlib

import pytest

pytest.importorskip("salt")

import salt.loader

from saltvirt import errors
from saltvirt.fleet import authorization, download_queue
from saltvirt.fleet.pillars import Pillars
from saltvirt.host.node import detect
from tests.functional import hostile
from tests.functional.pki_master import Master

IMAGE = "0" * 40
KEY = "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n"
VALUES = [*hostile.VALUES, "0" * 39 + "x", "web1", KEY, "=", "AAAA", "\u00b2", "9" * 5000]
ASKED = {
    "virtkey": {"name": "web1", "key": KEY, "copy": None, "done": False, "seal": None},
    "libvirt": {"seal": None, "csr": None, "dry": True, "country": "CH", "expiration_days": 7,
                "hosts": None, "subjects": None},
}  # fmt: skip


@pytest.fixture
def master(tmp_path):
    return Master(tmp_path, hosts="hv*").accept("hv1", "web1")


@pytest.fixture
def pillars(master):
    """The functions themselves, so that what they raise is seen."""
    return salt.loader.pillars(master.opts, {})


def one_line(call, *arguments, **named):
    try:
        return call(*arguments, **named)
    except errors.VirtError as exc:
        assert str(exc).isprintable()
        assert len(str(exc)) < 10_000
        return None


@pytest.mark.parametrize("who", ["hv1", "web1", "../hv1"])
@pytest.mark.parametrize("name", ASKED)
def test_what_a_minion_asks(master, pillars, name, who, caplog):
    for key in ASKED[name]:
        for value in hostile.sample(VALUES, 1, None if os.environ.get("SLOW") else 20):
            asked = {**ASKED[name], key: value}
            if name == "virtkey" and key == "seal":
                asked.pop("key")
            found = one_line(pillars[name], who, {}, **asked)
            assert found is None or isinstance(found, dict)
            told = json.dumps(found, default=str)
            assert len(told) < 100_000
            if who != "hv1":
                assert found in ({}, None, {"virtkey": {}}) or found == {
                    "virtkey": {str(asked["name"])[:256]: False}
                }
    assert max(map(len, caplog.messages), default=0) < 20_000
    above = {path.name for path in master.folder.iterdir()}
    assert above <= {"pki", "cache", "extmods", "sock"}
    assert not (master.pki / "minions_pre" / "web1").exists()
    # and others are answered
    assert pillars["virtkey"]("hv1", {}, copy=IMAGE) == {"virtkey": {"turn": 0}}
    assert "libvirt.mode" in pillars["libvirt"]("hv1", {}, dry=True)


@pytest.mark.parametrize("name", ASKED)
def test_what_the_pillar_so_far_says(pillars, name):
    for value in VALUES:
        flat = {f"ext_pillar_virt.{key}": value for key in ("country", "expiration_days")}
        for pillar in (flat, {"ext_pillar_virt": value}, {"ext_pillar_virt": {"country": value}}):
            found = one_line(pillars[name], "hv1", pillar, "_")
            assert isinstance(found, dict)


DAMAGED = [
    b"", b"{", b"null", b"7", b'"x"', b"[]", b"[7]", b"[[]]", b"[{}]", b'[{"host": 7}]', b"{}",
    b'{"key": 7}', b'{"expires_s": "x"}', b'{"expires_s": 1e400}', b'{"expires_s": 99999999999}',
    b"\xff\xfe", bytes(5000), b"[" * 100_000, b'{"last_seen_s": []}',
    b'[{"host": "hv2", "image": "x", "last_seen_s": "now"}]',
    b'[{"host": "hv2", "image": "x", "last_seen_s": 99999999999, "copies": true, '
    b'"since": 99999999999}]',
]  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED, ids=lambda text: repr(text[:40]))
def test_a_damaged_file_of_the_masters(master, pillars, content):
    """A torn or foreign file costs what it was about, and nothing else."""
    for path in (
        pathlib.Path(master.opts["cachedir"]) / "virt/copies",
        master.pki / "virtkeys/hv1/web1",
        master.pki / "virtpillars/web1",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert one_line(pillars["virtkey"], "hv1", {}, copy=IMAGE) == {"virtkey": {"turn": 0}}
    assert pillars["virtkey"]("web1", {}, "_") == {}
    assert pillars["virtkey"]("hv1", {}, name="web1", seal="AAAA") == {"virtkey": {}}
    assert pillars["virtkey"]("hv1", {}, name="web1", key=KEY) == {"virtkey": {"web1": False}}
    grants = authorization.Authorizations({**master.opts, "minimum_auth_version": 3})
    grants.grant("hv1", "web1")
    assert grants.redeem("hv1", "web1")
    Pillars(master.opts).store("web1", "key", {"a": 1})
    assert pillars["virtkey"]("web1", {}, "_") == {"a": 1}


def test_a_place_of_a_clock_that_was_ahead_holds_nobody_up(master):
    now = [1_000_000_000.0]
    turns = download_queue.DownloadQueue(
        {**master.opts, "virt": {"image_copies": 1}}, now=lambda: now[0]
    )
    assert turns.ask("hv2", IMAGE) == 0
    now[0] -= 86400
    assert turns.ask("hv1", IMAGE) == 0


@pytest.fixture
def engine(master):
    pytest.importorskip("libvirt")
    opts = {**master.opts, "__role": "minion", "engines_dirs": [
        str(pathlib.Path(__file__).parents[3] / "_engines")]}  # fmt: skip
    found = salt.loader.engines(opts, {"event.send": print}, {}, {}, {})
    return found["libvirt_events.start"]


def test_an_engine_without_the_binding_says_what_mends_it(master, monkeypatch):
    connection = pytest.importorskip("saltvirt.host.connection")
    monkeypatch.setattr(connection, "IMPORT_ERROR", ImportError("No module named 'libvirt'"))
    opts = {**master.opts, "__role": "minion", "engines_dirs": [
        str(pathlib.Path(__file__).parents[3] / "_engines")]}  # fmt: skip
    found = salt.loader.engines(opts, {"event.send": print}, {}, {}, {})
    assert "libvirt_events.start" not in found
    assert "No module named 'libvirt'" in found.missing_modules["libvirt_events"]


@pytest.mark.parametrize("value", [v for v in VALUES if v not in (None, "", [], {}, 0, False)],
                         ids=hostile.show)  # fmt: skip
def test_what_configuration_says_to_the_engine(engine, value):
    """It ends with one line, before it listens."""
    for given in ({"filters": value}, {"filters": [value]}, {"tag_prefix": value}, {"uri": value}):
        if "filters" not in given and isinstance(value, str):
            continue
        with pytest.raises(errors.InvalidInput) as said:
            engine(**given)
        assert str(said.value).isprintable()
        assert len(str(said.value)) < 10_000


def test_the_grain_reads_what_it_finds(tmp_path):
    (tmp_path / "proc/xen").mkdir(parents=True)
    (tmp_path / "proc/xen/capabilities").write_bytes(b"\xff\xfe control_d")
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr/sbin").symlink_to("sbin")
    (tmp_path / "run").write_text("no folder")
    assert detect.detect("x86_64", tmp_path)["hypervisor"] is False
