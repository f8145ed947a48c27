"""The system on a disk that is seeded, as libguestfs reports it."""

import pytest

from saltvirt import errors
from saltvirt.seed import guestfish


class Told:
    """A session that answers so."""

    def __init__(self, **answers):
        self.answers, self.done = answers, []

    def text(self, word, *about):
        found = self.answers.get(word.replace("-", "_"), "")
        return found[about[0]] if isinstance(found, dict) else found

    def run(self, *words):
        self.done.append(words)


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ({"/dev/sda": "crypto_LUKS"}, r"an operating system \(there is crypto_LUKS\)$"),
        (
            {"/dev/sda1": "swap", "/dev/sda2": "crypto_LUKS", "/dev/sda3": "LVM2_member"},
            r"an operating system \(there is LVM2_member; there is crypto_LUKS\)$",
        ),
        ({"/dev/sda1": "swap", "/dev/sda2": "vfat", "/dev/sda3": ""}, "an operating system$"),
    ],
)
def test_what_has_no_system_is_said_to_have_what_it_has(kinds, words):
    told = Told(list_partitions="\n".join(kinds), vfs_type=kinds)
    with pytest.raises(errors.SeedFailed, match=words):
        guestfish._mount(told)
    assert told.done == []


def test_not_each_of_endless_partitions_is_looked_at():
    """The appliance would take ten minutes to inspect them, while the guest waits."""
    told = Told(list_partitions="\n".join(f"/dev/sda{n}" for n in range(255)), vfs_type={})
    with pytest.raises(errors.SeedFailed, match="the disk has 255 partitions, more than 64"):
        guestfish._mount(told)


def test_the_one_plain_file_system_is_mounted():
    told = Told(list_devices="/dev/sda", vfs_type="ext4", is_dir={"/etc": "true"})
    guestfish._mount(told)
    assert told.done == [("mount", "/dev/sda", "/")]
