"""The record of a replaced guest on its host: it survives a crash, and a damaged one is
reported."""

import json
import os
import stat

import pytest

pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.backup.export import replaced_guest

DEFINITION = "<domain><name>web1</name></domain>"
KEPT = replaced_guest.ReplacedGuest("u1", "web1", "000001-x", DEFINITION, ("/i/new.qcow2",))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    found = tmp_path / "state/aside"
    monkeypatch.setattr(replaced_guest, "FOLDER", str(found))
    return found


def test_what_is_kept_is_there_until_it_is_forgotten(folder):
    other = replaced_guest.ReplacedGuest("u2", "db1", "000002-x", DEFINITION, ())
    assert [*replaced_guest.load_all()] == []
    replaced_guest.store(KEPT)
    replaced_guest.store(other)
    assert replaced_guest.load("u1") == KEPT
    assert replaced_guest.load("u1").tree.findtext("name") == "web1"
    assert [*replaced_guest.load_all()] == [KEPT, other]
    replaced_guest.forget("u1")
    assert replaced_guest.load("u1") is None
    assert [*replaced_guest.load_all()] == [other]
    replaced_guest.forget("u1")


def test_what_is_secret_in_it_is_roots_alone(folder):
    replaced_guest.store(KEPT)
    [file] = folder.iterdir()
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (folder, file)] == [0o700, 0o600]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not JSON"),
        ('{"uuid": "u1"}', "name"),
        (KEPT.to_answer() | {"definition": "<domain>"}, "no element found"),
        (KEPT.to_answer() | {"definition": "<network/>"}, "it contains no definition of a guest"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_to_do(folder, text, why):
    replaced_guest.store(KEPT)
    text = text if isinstance(text, str) else json.dumps(text)
    (folder / "u1.json").write_text(text)
    for ask in (lambda: replaced_guest.load("u1"), lambda: [*replaced_guest.load_all()]):
        with pytest.raises(errors.OperationFailed) as failed:
            ask()
        told = failed.value.text
        assert told.startswith(f"{folder}/u1.json cannot be read: ")
        assert why in told and told.endswith(
            "; it records a guest before a backup replaced it: repair the file, or remove it"
        )


def test_one_that_goes_meanwhile_is_not_among_them(folder, monkeypatch):
    replaced_guest.store(KEPT)
    monkeypatch.setattr(replaced_guest.move_journal, "names", lambda _folder: ["gone", "u1"])
    assert [*replaced_guest.load_all()] == [KEPT]
