"""Whether guests can run with KVM on this machine. /dev/kvm may exist and not work: on some
machines a guest never passes its boot loader. Therefore the guest image is booted once, and the
result is stored."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from tests.lab import cache

DEVICE = Path("/dev/kvm")
# saltvirt.seed.guestfish's, which keeps it for a day
KNOWN = Path("/run/salt-virt/appliance-without-kvm")
# what the image's kernel shows once all is up; it takes about 5 s under KVM
SIGN, PATIENCE_S = b"login:", 15


def usable(image):
    """Does the guest image boot under KVM here? LAB_KVM=0 or 1 decides without a try."""
    told = os.environ.get("LAB_KVM")
    if told in ("0", "1"):
        return told == "1"
    if not DEVICE.exists():
        return False
    machine = [
        Path(f"/proc/{name}").read_text() for name in ("version", "sys/kernel/random/boot_id")
    ]
    tried = cache.built(f"kvm-{cache.key(*machine)}", lambda folder: probe(folder, image))
    return (tried / "works").exists()


def tell_the_library(image):
    """Where no guest boots under KVM the library knows, as after its own two minutes of trying."""
    if DEVICE.exists() and not usable(image):
        KNOWN.parent.mkdir(mode=0o700, exist_ok=True)
        KNOWN.write_text("found by the lab's own probe\n")


def probe(folder, image):
    """Boot the image, from a copy that is thrown away, and make `folder`/works if it boots."""
    with tempfile.NamedTemporaryFile(prefix="lab-kvm-") as console:
        child = subprocess.Popen(
            ["qemu-system-x86_64", "-accel", "kvm", "-m", "512", "-display", "none",
             "-no-reboot", "-serial", f"file:{console.name}",
             "-drive", f"file={image},if=virtio,snapshot=on"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and child.poll() is None:
            if SIGN in Path(console.name).read_bytes():
                (folder / "works").touch()
                break
            time.sleep(0.2)
        child.kill()
        child.wait()
