"""The record of a backup: it is read as it was written, and invalid ones are refused in one
line."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltvirt.backup.model import record, verification
from saltvirt.backup.model.verification import Verification
from saltvirt.errors import BadAnswer
from tests.strategies import JSON, cut, parsed_or_refused, twisted
from tests.unit.backup.model import made


def parsed(**changes):
    data = made.record().to_answer()
    data |= changes
    return record.parse(json.dumps(data).encode(), "it")


def with_disk(**changes):
    return parsed(disks=[{**made.disk().to_answer(), **changes}])


def test_it_is_read_as_it_was_written():
    one = made.record(3, [made.disk(parent=2), made.disk("vdb", checkpoint=None)])
    data = record.serialize(one)
    assert record.parse(data, "it", record.seal(data)) == one
    assert one.parents == {made.ident(2)}


def test_a_disk_is_found_by_its_name():
    one = made.record(3, [made.disk(), made.disk("vdb")])
    assert [disk.checksums for disk in one.disks] == ["vda.pieces", "vdb.pieces"]
    assert one.disk("vdb") is one.disks[1]
    assert one.disk("vdc") is None


def test_it_can_be_compared_and_read_by_people():
    lines = record.serialize(made.record()).decode().splitlines()
    assert lines[0] == "{" and lines[1].startswith(' "backup_id": ')
    keys = [line.split('"')[1] for line in lines if line.startswith(' "')]
    assert keys == sorted(keys) and len(keys) > 9


def test_what_could_not_be_read_again_is_not_written(monkeypatch):
    with pytest.raises(BadAnswer, match="the new record: invalid guest"):
        record.serialize(made.record(guest=".."))
    length = len(record.serialize(made.record()))
    monkeypatch.setattr(record, "MAX_BYTES", length)
    record.parse(record.serialize(made.record()), "it")
    monkeypatch.setattr(record, "MAX_BYTES", length - 1)
    with pytest.raises(BadAnswer, match=f"longer than {length - 1} bytes"):
        record.serialize(made.record())


def test_what_is_just_in_bounds():
    many = made.record(disks=[made.disk(f"v{n}", size_bytes=1) for n in range(256)])
    record.check(many, "it")
    record.check(made.record(guest="a" * 255), "it")


def test_what_a_disk_stands_on_is_found_without_us():
    assert made.disk(parent=2).backing == (f"../{made.ident(2)}/vda.qcow2", "qcow2")
    assert made.disk().backing is None


def test_the_seal_is_sha256sums():
    assert record.seal(b"") == (
        b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  record.json\n"
    )


def test_a_changed_byte_is_seen():
    data = record.serialize(made.record())
    with pytest.raises(BadAnswer, match=r"does not match record\.sha256"):
        record.parse(data.replace(b"frozen", b"crash"), "it", record.seal(data))


def test_a_key_that_a_later_version_added_is_passed_over():
    assert parsed(colour="blue") == made.record()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("backup_id", "../../etc"),
        ("backup_id", made.ident(1)[:-1]),
        ("guest", ".."),
        ("guest", "a/b"),
        ("guest", "web\x1b[2J"),
        ("guest", "web\u202e1"),
        ("guest", "a" * 256),
        ("uuid", "../x"),
        ("uuid", made.UUID.upper()),
        ("taken_at", "yesterday"),
        ("taken_at", "2026-13-01T00:00:00Z"),
        ("taken_at", "2026-1-1T0:0:0Z"),
        ("requester", "root\nroot"),
        ("requester", "a" * 1001),
        ("host", "a/b"),
        ("host", ".."),
        ("consistency", "perfect"),
        ("qemu_img", "-h"),
        ("definition_sha256", "a" * 63),
        ("definition_sha256", "A" * 64),
    ],
)
def test_a_field_of_another_shape_is_named(key, value):
    with pytest.raises(BadAnswer, match=f"^it: invalid {key} ") as raised:
        parsed(**{key: value})
    assert len(raised.value.text) < 300


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("target", "../x"),
        ("target", ""),
        ("target", "a" * 33),
        ("target", "-v"),
        ("size_bytes", 0),
        ("source", "a\nb"),
        ("checksums_sha256", ""),
        ("parent", "../1"),
        ("parent", made.ident(1)),
        ("parent", made.ident(2)),
        ("reason", None),
        ("checkpoint", "../x"),
        ("checkpoint", ""),
        ("key", "ours"),
        ("key", "../x.0123456789abcdef"),
    ],
)
def test_a_field_of_a_disk_of_another_shape_is_named(key, value):
    with pytest.raises(BadAnswer, match=f"^it: disk .*: invalid {key} "):
        with_disk(**{key: value})


def test_an_increment_has_no_reason():
    with pytest.raises(BadAnswer, match="invalid reason 'x'"):
        record.check(made.record(3, [made.disk(parent=2, reason="x")]), "it")


@pytest.mark.parametrize("other", [None, "theirs.0123456789abcdef"])
def test_all_disks_are_encrypted_by_one_key(other):
    """A part that is not would be read by who has no key, and nobody would be told."""
    key = "ours.0123456789abcdef"
    record.check(made.record(disks=[made.disk(key=key), made.disk("vdb", key=key)]), "it")
    with pytest.raises(BadAnswer, match="it: disks with different encryption keys"):
        record.check(made.record(disks=[made.disk(key=key), made.disk("vdb", key=other)]), "it")


def test_a_key_is_asked_for_by_its_name():
    assert record.key_name("ours.0123456789abcdef") == "ours"
    assert record.key_name("ours") is None


@pytest.mark.parametrize("value", [None, 7, b"a", ["a"]])
def test_what_is_no_text_is_neither_a_uuid_nor_a_digest_nor_a_disk(value):
    assert record.is_target(value) is False
    assert record.is_uuid(value) is False
    assert record.is_sha256(value) is False


def test_two_disks_of_one_name():
    with pytest.raises(BadAnswer, match="duplicate disk vda"):
        record.check(made.record(disks=[made.disk("vda"), made.disk("VDA")]), "it")


def test_so_many_disks_are_too_many():
    with pytest.raises(BadAnswer, match="more than 256 disks"):
        record.check(made.record(disks=[made.disk(f"v{n}") for n in range(257)]), "it")


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[]", b"7", b"{", b"[" * 100_000, b"{}", b" " * (2**20 + 1)],
    ids=lambda data: str(data[:5]),
)
def test_what_is_no_record(data):
    with pytest.raises(BadAnswer) as raised:
        record.parse(data, "it")
    assert raised.value.text.startswith("it: ")


def test_ten_megabytes_are_not_parsed():
    with pytest.raises(BadAnswer, match="longer than 1048576 bytes"):
        record.parse(b'{"guest": "' + b"a" * 10 * 2**20 + b'"}', "it")


def test_one_of_a_later_format_is_named_as_such():
    with pytest.raises(BadAnswer, match="unsupported format 2, expected 1"):
        parsed(format=2, backup_id=7)


# what these keys may have
FITTING = {
    "disks": ([],), "guest": ("x" * 9,), "requester": ("x" * 9,), "host": ("x" * 9,),
    "qemu_img": ("x" * 9,), "finished": (None,), "skipped": ({},), "state": (None,),
}  # fmt: skip
WRONG_TYPES = [
    (key.name, value)
    for key in dataclasses.fields(record.BackupRecord)
    for value in (None, 7, -1, 1.5, True, "x" * 9, [], {}, [[]], {"a": {}})
    if value not in FITTING.get(key.name, ())
]


@pytest.mark.parametrize("key, value", WRONG_TYPES)
def test_wrong_types_are_one_line(key, value):
    with pytest.raises(BadAnswer):
        parsed(**{key: value})


test_it_is_parsed_or_refused_in_one_line = parsed_or_refused({
    "record": (
        twisted(made.record().to_answer()),
        lambda data: record.parse(json.dumps(data).encode(), "it"),
    ),
    "text": (
        cut(record.serialize(made.record()).decode()),
        lambda text: record.parse(text.encode("utf-8", "surrogatepass"), "it"),
    ),
    "verification": (
        twisted({"verified_at": "2026-11-23T16:00:00Z", "disks": ["vda"], "broken_disks": {}}),
        lambda data: verification.parse(json.dumps(data).encode(), "it"),
    ),
})  # fmt: skip


@given(st.sampled_from([one.name for one in dataclasses.fields(record.BackupDiskRecord)]), JSON)
def test_whatever_is_in_a_disk_it_is_refused_or_written_again(key, value):
    try:
        found = with_disk(**{key: value})
    except BadAnswer as exc:
        assert "\n" not in exc.text
    else:
        assert record.parse(record.serialize(found), "it") == found


def test_a_mark_is_read_as_it_was_written():
    one = Verification("2026-11-23T16:00:00Z", ("vda", "vdb"), {"vdb": "the piece at 0 is another"})
    assert verification.parse(record.as_json(one), "it") == one
    assert one.is_good is False
    assert Verification(one.verified_at).is_good is True


@pytest.mark.parametrize("data", [b"", b"{}", b'{"verified_at": 7}', b'{"verified_at": "never"}'])
def test_what_is_no_mark(data):
    with pytest.raises(BadAnswer):
        verification.parse(data, "it")


def test_a_record_with_the_former_keys_is_read():
    data = json.loads(record.serialize(made.record()))
    for former, key in record.BackupRecord.ALIASES.items():
        data[former] = data.pop(key)
    for disk in data["disks"]:
        disk["pieces_sha256"] = disk.pop("checksums_sha256")
    assert record.parse(json.dumps(data).encode(), "a record") == made.record()
