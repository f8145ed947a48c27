"""Where a guest is said to be that the state of its place does not find."""

import pytest

from saltvirt.errors import NotFound
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
