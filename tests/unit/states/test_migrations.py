"""The location of a guest that the state does not find on its host."""

import pytest

from saltvirt.errors import NotFound, VirtError
from saltvirt.states import migrations


class Host:
    """The functions of a host that has no guests, and whose neighbours have none."""

    test = False

    def call(self, function, *args, **kwargs):
        assert function == "list_domains"
        return []


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("hv1", "web1 is not on hv1; apply this on the host that has it"),
        ("hv2", "web1 is neither on hv1 nor on hv2"),
    ],
)
def test_a_guest_that_is_not_there(target, said):
    with pytest.raises(NotFound, match=said):
        migrations.migrated(Host(), "web1", target, "hv1")


def test_a_guest_that_cannot_move_is_said_by_a_test():
    class Here(Host):
        test, verdict = True, {"migratable": False, "reasons": ["no room on hv2", "a disk is here"]}

        def call(self, function, *args, **kwargs):
            return ["web1"] if function == "list_domains" else self.verdict

    with pytest.raises(VirtError, match=r"^no room on hv2; a disk is here$"):
        migrations.migrated(Here(), "web1", "hv2", "hv1")
    Here.verdict = {"migratable": True, "reasons": []}
    answer = migrations.migrated(Here(), "web1", "hv2", "hv1")
    assert (answer["result"], answer["comment"]) == (None, "web1 would be moved to hv2")
    assert answer["changes"] == {"web1": {"host": {"old": "hv1", "new": "hv2"}}}
