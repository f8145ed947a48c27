"""Two hypervisors that trust each other, and guests that notice every loss."""

import pytest

from tests.integration.migration import counter


@pytest.fixture(scope="session")
def cloud(lab):
    """The lab with libvirt set up by the formula, and the counting guest's files."""
    if not all(speaks_tls(lab, host) for host in lab.hosts):
        answers = lab.salt("hv*", "state.apply", "libvirt", timeout=240)
        for host, answer in answers.items():
            failed = [state for state in answer.values() if not state["result"]]
            assert not failed, f"{host}: {failed}"
    counter.install(lab)
    return lab


def speaks_tls(lab, host):
    """Whether the formula was applied there already."""
    return (
        lab.exec(host, f"virsh -c qemu+tls://{host}/system hostname", check=False).returncode == 0
    )


@pytest.fixture
def guests(cloud):
    """Makes counting guests, and removes what is left of them after the test."""
    made = []

    def make(name, **how):
        made.append(counter.Counter(cloud, name, **how))
        return made[-1]

    yield make
    for guest in made:
        remove(cloud, guest)


def remove(lab, guest):
    for host in lab.hosts:
        for command in ("destroy", "undefine --nvram --snapshots-metadata"):
            lab.exec(host, f"virsh {command} {guest.name} 2>&1", check=False)
        left = f"{counter.IMAGES}/{guest.name}_* /run/{guest.name}.*"
        lab.exec(host, f"rm -f {guest.disk} {left} {counter.JOURNALS}/{guest.name}.*")
