"""Two hypervisors that trust each other, and guests that detect every loss."""

import pytest

from tests.integration.migration import counter


@pytest.fixture(scope="package")
def cloud(lab):
    """The lab with libvirt set up by the formula, and the counting guest's files."""
    counter.install(lab)
    return lab


@pytest.fixture
def guests(cloud):
    """Makes counting guests, and removes what is left of them after the test."""
    made = []

    def make(name, **how):
        made.append(counter.Counter(cloud, name, **how))
        return made[-1]

    yield make
    for guest in made:
        guest.remove()
