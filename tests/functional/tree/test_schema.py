"""Our XML is valid against libvirt's own schemas."""

import shutil
import subprocess

import pytest

from tests.golden import HOME

KINDS = {
    "domains": "domain",
    "networks": "network",
    "pools": "storagepool",
    "volumes": "storagevol",
    "secrets": "secret",
}
# libvirt takes these, its schemas do not: names with "_" in DNS, a volume without a target
LOOSE = {HOME / "networks/nat.xml", HOME / "volumes/plain.xml"}
FILES = [path for kind in KINDS for path in sorted((HOME / kind).glob("*.xml"))]
STRICT = [path for path in FILES if path not in LOOSE]


@pytest.mark.skipif(not shutil.which("virt-xml-validate"), reason="no virt-xml-validate")
@pytest.mark.parametrize("path", STRICT, ids=lambda path: str(path.relative_to(HOME)))
def test_schema(path):
    command = ["virt-xml-validate", str(path), KINDS[path.parent.name]]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
