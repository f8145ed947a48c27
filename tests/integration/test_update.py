"""A new version of the library reaches running masters and minions by sync_all alone."""

import shutil

import pytest

from tests.lab import paths, publish

pytestmark = pytest.mark.lab

ADAPTER = """
import saltvirt
saltvirt = saltvirt.fresh()
from saltvirt import probe_part


def answer():
    saltvirt.check()
    return probe_part.answer()
"""
PILLAR = (
    ADAPTER
    + """

def ext_pillar(minion_id, pillar, *args, **kwargs):
    # a file, for Salt 3008 shows stars where a pillar's value is
    with open("/tmp/probe-pillar", "w") as file:
        file.write(answer())
    return {}
"""
)
# the adapter imports a part, which imports another: both must be new together
PART = (
    "from saltvirt import probe_words\n\n\ndef answer():\n    return probe_words.WORD + VERSION\n"
)


def write(tree, version):
    """Put the probe of a version into a copy of the tree."""
    library = tree / "_utils/saltvirt"
    (library / "probe_part.py").write_text(f"VERSION = {version!r}\n{PART}")
    (library / "probe_words.py").write_text(f"WORD = {version + ' '!r}\n")
    for folder, text in (("_modules", ADAPTER), ("_runners", ADAPTER), ("_pillar", PILLAR)):
        (tree / folder).mkdir(exist_ok=True)
        (tree / folder / "probe.py").write_text(text)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of what this tree serves."""
    tree = tmp_path_factory.mktemp("tree")
    for name in publish.SERVED:
        source = paths.REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tree


@pytest.fixture(scope="module")
def cloud(fresh_lab, tree):
    """hv1 as Salt ships it; hv2 runs jobs in its one long-lived process; the master's
    workers, which live long too, run the pillar."""
    config = "printf 'multiprocessing: False\\n' > /etc/salt/minion.d/one-process.conf"
    fresh_lab.exec("hv2", f"mkdir -p /etc/salt/minion.d; {config}")
    write(tree, "one")
    fresh_lab.restart_minion("hv2")
    fresh_lab.sync(tree)
    pillar = "printf 'ext_pillar:\\n  - probe: {}\\n' > /etc/salt/master.d/probe.conf"
    fresh_lab.exec("master", pillar)
    fresh_lab.restart_master()
    return fresh_lab


def answers(cloud):
    """What each kind of process runs now."""
    found = {host: cloud.call(host, "probe.answer") for host in cloud.hosts}
    found["runner"] = cloud.run_json("probe.answer")
    cloud.call("hv1", "saltutil.refresh_pillar", wait=True)
    found["pillar"] = cloud.exec("master", "cat /tmp/probe-pillar; rm /tmp/probe-pillar").stdout
    return found


def test_the_next_call_runs_the_new_library(cloud, tree):
    assert set(answers(cloud).values()) == {"one one"}
    for version in ("two", "three"):
        write(tree, version)
        cloud.sync(tree)
        wanted = dict.fromkeys(["hv1", "hv2", "runner", "pillar"], f"{version} {version}")
        assert answers(cloud) == wanted


def test_a_file_taken_away_is_gone_everywhere(cloud, tree):
    for folder in ("_modules", "_runners", "_pillar"):
        (tree / folder / "probe.py").unlink()
    cloud.sync(tree)
    for host in cloud.hosts:
        # a minion answers to a sync before it has looked for its modules again
        cloud.wait(
            lambda h=host: "probe.answer" not in cloud.call(h, "sys.list_functions", "probe"),
            f"it is gone on {host}",
        )
    assert "is not available" in "".join(cloud.run("probe.answer")[1:])
