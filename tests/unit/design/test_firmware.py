"""The firmware that a definition requests of libvirt."""

import dataclasses

import pytest

from saltvirt import errors
from saltvirt.design import caps, domain
from saltvirt.diff.changes import changes
from saltvirt.host.provision import firmware
from saltvirt.host.storage import files
from saltvirt.spec import guest
from tests import golden
from tests.unit.design.test_changes import given

_READ = caps.parse(golden.read("caps/qemu.xml"), golden.read("caps/qemu-kvm-domain.xml"))
CAPS = dataclasses.replace(_READ, domain=dataclasses.replace(_READ.domain, secure_boot=True))
PLAIN, SECURE, OWN_KEYS = (False, False), (True, True), (True, False)


def existing(**arguments):
    return domain.build(guest.parse("web1", 2, 512, **arguments), CAPS, given())


def amended(actual, **boot):
    return domain.amend(guest.parse("web1", update=True, boot=boot), actual, CAPS, given())


def asked(built):
    found = {feature.name: feature.enabled for feature in built.os.firmware_features}
    assert set(found) <= {"secure-boot", "enrolled-keys"}
    return tuple(found[name] for name in ("secure-boot", "enrolled-keys") if name in found)


@pytest.mark.parametrize(
    ("boot", "expected"),
    [({"efi": True}, PLAIN), ({"efi": True, "secure": False}, PLAIN),
     ({"efi": True, "secure": None}, PLAIN), ({"efi": True, "secure": True}, SECURE),
     ({"efi": True, "secure": True, "enrolled_keys": False}, OWN_KEYS)],
)  # fmt: skip
def test_only_who_asks_for_secure_boot_gets_it(boot, expected):
    built = existing(boot=boot)
    assert asked(built) == expected
    assert built.os.loader_secure is (expected[0] or None)
    assert changes(amended(built, **boot), built) == []


def test_keys_stay_as_they_were_requested():
    built = existing(boot={"efi": True, "secure": True, "enrolled_keys": False})
    assert asked(amended(built, efi=True, secure=True)) == OWN_KEYS
    assert asked(amended(built, secure=False)) == PLAIN
    assert asked(amended(built, enrolled_keys=None)) == SECURE
    with pytest.raises(errors.InvalidInput, match="enrolled_keys needs secure"):
        existing(boot={"efi": True, "secure": False, "enrolled_keys": True})
    with pytest.raises(errors.Unsupported, match="secure: True too"):
        existing(boot={"efi": True, "enrolled_keys": True})


def test_a_guest_that_is_there_keeps_its_firmware_until_its_user_says_so():
    old = existing(boot={"efi": True})
    old.os.firmware_features = []  # as Salt 3007 made it
    assert changes(amended(old, efi=True), old) == []
    for secure, expected in ((False, PLAIN), (True, SECURE)):
        wanted = amended(old, efi=True, secure=secure)
        assert asked(wanted) == expected
        paths = {change.path for change in changes(wanted, old)}
        assert "os:firmware_features:secure-boot:enabled" in paths
    back = amended(existing(boot={"efi": True, "secure": True}), secure=False)
    assert asked(back) == PLAIN and back.os.loader_secure is None


def test_firmware_that_is_named_or_gone_is_not_chosen():
    old = existing(boot={"efi": True})
    for boot in ({"efi": False}, {"loader": "/f/code.fd", "nvram": "/f/vars.fd"}):
        assert asked(amended(old, **boot)) == () and amended(old, **boot).os.firmware is None
    assert asked(amended(existing(), efi=True)) == PLAIN


@pytest.mark.parametrize("there", [True, False])
def test_a_guest_does_not_start_with_other_firmware_on_its_old_variables(
    there, monkeypatch, tmp_path
):
    monkeypatch.setattr(files, "_VARIABLES", str(tmp_path))
    variables = tmp_path / "web1_VARS.fd"
    if there:
        variables.write_bytes(b"keys")
    plain, secure = existing(boot={"efi": True}), existing(boot={"efi": True, "secure": True})
    named = amended(plain, loader="/f/code.fd", nvram="/f/vars.fd")
    for actual, wanted in ((plain, secure), (secure, plain), (plain, named)):
        if not there:
            firmware.refuse_change("web1", actual, wanted, CAPS)
            continue
        with pytest.raises(errors.Refused, match=f"{variables}: shut it down, move that file away"):
            firmware.refuse_change("web1", actual, wanted, CAPS)
    bios = existing()
    for pair in ((plain, plain), (bios, secure), (plain, bios), (plain, amended(plain, efi=True))):
        firmware.refuse_change("web1", *pair, CAPS)


def test_what_libvirt_chose_by_itself_is_what_the_machine_can(monkeypatch, tmp_path):
    monkeypatch.setattr(files, "_VARIABLES", str(tmp_path))
    (tmp_path / "web1_VARS.fd").write_bytes(b"keys")
    old = existing(boot={"efi": True})
    old.os.firmware_features = []  # as Salt 3007 made it
    with pytest.raises(errors.Refused, match="firmware without secure boot"):
        firmware.refuse_change("web1", old, amended(old, secure=False), CAPS)
    firmware.refuse_change("web1", old, amended(old, secure=False), _READ)
    firmware.refuse_change("web1", old, amended(old, secure=True), CAPS)
