"""The layer with /opt/salt, which lies over the operating system of a machine or a guest.

It is the same for every Debian: they all have a Python 3.11 at the same place.
"""

from tests.lab.build.wheels import ALSO, of
from tests.lab.sh import run


def build(folder, below, wheels, recipe):
    """Make `folder`/layer hold what installing Salt adds to the root `below`."""
    layer, work, root = folder / "layer", folder / "work", folder / "root"
    wanted = " ".join(f"'{name}'" for name in (*of(recipe.salt_version), *ALSO))
    for made in (layer, work, root):
        made.mkdir()
    options = f"lowerdir={below},upperdir={layer},workdir={work}"
    run(["mount", "-t", "overlay", "overlay", "-o", options, root])
    try:
        run(["cp", "-r", wheels / "wheels", root / "wheels"])
        run(["chroot", root, "/bin/sh", "-ec", f"""
            python3.11 -m venv /opt/salt
            /opt/salt/bin/pip install -q --no-index --find-links /wheels {wanted}
            ln -sf /opt/salt/bin/salt* /opt/salt/bin/spm /usr/local/bin/
            rm -rf /wheels /root/.cache
        """])  # fmt: skip
    finally:
        run(["umount", root])
    run(["rm", "-rf", work, root])
