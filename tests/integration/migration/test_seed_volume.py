"""The volume for cloud-init of a guest that leaves its host before it is seeded."""

import pytest

pytestmark = pytest.mark.lab

FOLDER = "/srv/salt-images/_seed"
RECORD = "<s:disk target='hda' path='{0}'/>"
DRIVE = """<disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='{0}'/>
<target dev='hda' bus='ide'/><readonly/></disk>"""


@pytest.mark.parametrize("runs", [True, False])
def test_it_moves_along_and_back_and_is_on_one_host_at_a_time(cloud, guests, runs):
    name = f"seed{int(runs)}"
    volume = f"{FOLDER}/{name}.iso"
    cloud.exec("hv1", f"mkdir -p {FOLDER} && echo key | install -m 600 /dev/stdin {volume}")
    guest = guests(name, devices=DRIVE.format(volume))
    record = RECORD.format(volume)
    guest.xml = guest.xml.replace(" version='1'/>", f" version='1'>{record}</s:guest>", 1)
    guest.define("hv1")
    if runs:
        guest.start("hv1")
    try:
        for here, there in (("hv1", "hv2"), ("hv2", "hv1")):
            assert "hda seed" in cloud.run("virt.migratable", name, there).stdout
            done = cloud.run("virt.migrate", name, there)
            assert done.rc == 0, done.stdout
            assert cloud.exec(there, f"cat {volume}").stdout == "key\n"
            assert cloud.exec(here, f"ls {volume}", check=False).stdout == ""
            assert volume in cloud.exec(there, ["virsh", "domblklist", name]).stdout
        if runs:
            guest.counts_on("hv1")
        assert cloud.call("hv1", "virt.seed_eject", name) is True
        assert cloud.exec("hv1", f"ls {volume}", check=False).stdout == ""
    finally:
        for host in ("hv1", "hv2"):
            cloud.exec(host, f"rm -f {volume}")
