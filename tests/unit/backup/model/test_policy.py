"""``virt:backup``: targets and their common settings; each error is one line."""

import pytest

from saltvirt import settings
from saltvirt.backup.model import policy
from saltvirt.backup.model.retention import Retention
from saltvirt.errors import InvalidInput, NotFound

VAULT = {"host": "backup1", "folder": "/srv/backups"}


def read(**backup):
    return policy.read(settings.of_master({"virt": {"backup": backup}}))


def test_nothing_is_configured():
    found = policy.read(settings.of_master({}))
    assert found.targets == {} and found.at_once_per_host == 1
    with pytest.raises(InvalidInput, match="no backup target is configured"):
        found.target()


def test_what_a_target_does_not_say_is_common():
    found = read(
        targets={"vault": VAULT, "offsite": {"folder": "/mnt/b", "chain": 7, "mounted": True,
                                             "retention": {"yearly": 9}, "bandwidth": 10}},
        retention={"last": 3, "daily": 7}, chain=14, bandwidth=100, at_once_per_target=2,
    )  # fmt: skip
    vault, offsite = found.target("vault"), found.target("offsite")
    assert vault == policy.TargetPolicy(
        "vault", "backup1", "/srv/backups", False, Retention(last=3, daily=7), 14, 2, 100
    )
    assert vault.machine("hv1") == "backup1"
    assert (offsite.chain, offsite.bandwidth_mib_s, offsite.mounted) == (7, 10, True)
    assert offsite.retention == Retention(yearly=9)
    assert offsite.machine("hv1") == "hv1"


@pytest.mark.parametrize(
    ("one", "another", "is_refused"),
    [
        ({}, {"retention": {"last": 1}}, True),
        ({"retention": {"last": 1}}, {"folder": "/srv//backups/", "retention": {"last": 2}}, True),
        ({"retention": {"last": 1}}, {"retention": {"last": 1}, "bandwidth": 9}, False),
        ({}, {"folder": "/srv/backups/b", "retention": {"last": 1}}, False),
        ({}, {"host": "backup2", "retention": {"last": 1}}, False),
        ({"host": None}, {"retention": {"last": 1}}, False),
    ],
)
def test_two_targets_of_one_folder_keep_the_same(one, another, is_refused):
    """Else a prune by the rules of one removes what those of the other keep."""
    targets = {"a": {**VAULT, **one}, "b": {**VAULT, **another}}
    if is_refused:
        with pytest.raises(
            InvalidInput, match="b and a use the same folder, /srv/backups of backup1,"
        ):
            read(targets=targets)
    else:
        assert sorted(read(targets=targets).targets) == ["a", "b"]


def test_what_is_compressed_where():
    found = read(targets={"vault": {**VAULT, "compress": "zstd"}, "other": VAULT})
    assert (found.target("vault").compress, found.target("other").compress) == ("zstd", None)


def test_the_target_that_is_meant():
    assert read(targets={"vault": VAULT}).target().name == "vault"
    both = {"vault": VAULT, "other": VAULT}
    assert read(targets=both, target="other").target().name == "other"
    with pytest.raises(
        InvalidInput, match="several targets are configured, choose one with to=: other, vault"
    ):
        read(targets=both).target()
    for wrong in ("valt", "", ["vault"], {}, 7):
        with pytest.raises(NotFound, match=r"unknown backup target .*; known: other, va"):
            read(targets=both).target(wrong)


@pytest.mark.parametrize(
    ("backup", "words"),
    [
        ({"targets": ["vault"]}, "virt:backup:targets must be a mapping"),
        ({"targets": {"a/b": VAULT}}, "'a/b' cannot be a target's name"),
        ({"targets": {7: VAULT}}, "7 cannot be a target's name"),
        ({"targets": {"v": "/srv"}}, "virt:backup:targets:v must be a mapping, not '/srv'"),
        ({"targets": {"v": {}}}, "virt:backup:targets:v:folder is not set"),
        ({"targets": {"v": {"folder": "srv"}}}, "targets:v:folder must be an absolute path"),
        ({"targets": {"v": {**VAULT, "fold": 1}}}, "targets:v: unknown setting 'fold'; known: ho"),
        ({"targets": {"v": {**VAULT, "mounted": 1}}}, "targets:v:mounted must be True or False"),
        ({"targets": {"v": {**VAULT, "chain": 0}}}, "targets:v:chain must be a whole number from"),
        ({"targets": {"v": {**VAULT, "host": ["x"]}}}, "targets:v:host must be a text of one line"),
        ({"targets": {"v": {**VAULT, "retention": 3}}}, "targets:v:retention must be a mapping"),
        ({"targets": {"v": {**VAULT, "key": "../vault"}}},
         "targets:v:key must be letters, digits, '-' and '_', not '../vault'"),
        ({"targets": {"v": {"folder": "/srv", "key": "vault"}}},
         "targets:v:key requires host: without it, every hypervisor would need the key"),
        ({"targets": {"v": {**VAULT, "compress": "lz4"}}},
         "targets:v:compress: 'lz4' is not one of zstd, zlib"),
        ({"targets": {"v": {**VAULT, "compress": True}}}, "compress: True is not one of zstd, zli"),
        ({"targets": {"v": {**VAULT, "compress": "zstd", "key": "vault"}}},
         "targets:v:compress: cannot be combined with key, because QEMU does not compress"),
        ({"retention": {"dayly": 3}}, "virt:backup:retention: unknown setting 'dayly'; known: la"),
        ({"retention": {"daily": -1}}, "virt:backup:retention:daily must be a whole number from 0"),
        ({"retention": {"daily": "7"}}, "virt:backup:retention:daily must be a whole number"),
        ({"retention": {"daily": True}}, "virt:backup:retention:daily must be a whole number"),
        ({"chain": 101}, "virt:backup:chain must be a whole number from 1 to 100"),
        ({"targets": {"v": VAULT}, "target": "w"}, "virt:backup:target must be one of v, not 'w'"),
        ({"chains": 7}, "virt:backup: unknown setting 'chains'; did you mean chain?"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(backup, words):
    with pytest.raises(InvalidInput) as raised:
        read(**backup)
    assert words in raised.value.text
