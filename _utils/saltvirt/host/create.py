"""Making a guest from what the user asked for, and perhaps an image."""

import hashlib
import os

from saltvirt import errors
from saltvirt.host import building, bulk, describe, disks, medium
from saltvirt.host.connection import translated
from saltvirt.host.making import Making, Wish
from saltvirt.images import sources
from saltvirt.spec.base import given
from saltvirt.spec.disk import DiskSpec

BOOT = "_boot"


class Creation(Making):
    """A new guest of a GuestSpec."""

    def __init__(self, conn, spec, tools):
        deploy = spec.deploy
        wish = Wish(spec.name, deploy.seed, deploy.start, bool(spec.autostart))
        super().__init__(conn, wish, tools)
        self.spec = spec
        self.caps = None
        self.warnings = []
        self.pub_key = None

    def check(self):
        self.tools.say("check", "checking what was asked for")
        self.caps = building.caps_for(self.conn, self.spec)
        virt_type = building.virt_type(self.caps, self.spec)
        self.works = disks.plan(self.conn, self.spec, self.tools.gate.images_dir, virt_type)
        if self.tools.medium:
            self.add_medium()
        elif self.seeded_work() and not self.tools.seeder:
            raise errors.Unsupported("this host cannot seed: give seed=False")
        disks.not_in_use(self.conn, self.works, self.spec.name)
        self.admit(self.definition())
        for warning in dict.fromkeys(self.warnings):
            self.tools.say("warning", warning)

    def add_medium(self):
        """A drive with the volume that cloud-init reads; made when the interfaces are known."""
        path = medium.path(self.tools.gate.images_dir, self.spec.name)
        drive = DiskSpec(name=medium.NAME, device="cdrom", source_file=path, format="raw")
        self.spec.disks = [*(self.spec.disks or ()), drive]
        self.works.append(disks.Work(drive, True, "raw", path, write=self.write_medium))

    def write_medium(self, path):
        """Makes the volume and keeps the guest's key."""
        macs = [nic["mac"] for nic in describe.nics(bulk.tree(self.dom)).values()]
        wanted = [vars(spec) for spec in self.spec.nics or ()]
        nics = [{**more, "mac": mac} for mac, more in zip(macs, wanted, strict=True)]
        self.pub_key = self.tools.medium(self.spec.name, path, nics)

    def seed(self):
        return self.pub_key if self.tools.medium else super().seed()

    def fetch(self):
        for work in self.works:
            if work.make and work.spec.image:
                work.image = self.tools.image(work.spec)
                disks.fits(work)
        self.fetch_kernel()

    def fetch_kernel(self):
        """Brings a kernel or initrd that is not on this host to it."""
        boot = self.spec.boot
        for name in ("kernel", "initrd") if boot else ():
            source = given(getattr(boot, name))
            if source and "://" in source:
                self.tools.say("kernel", f"fetching {source}")
                setattr(boot, name, self.fetched(source))

    def fetched(self, source):
        """The path of a kernel or initrd on this host."""
        digest = hashlib.sha256(source.encode()).hexdigest()[:16]
        folder = os.path.join(self.tools.gate.images_dir, BOOT)
        path = os.path.join(folder, f"{digest}-{sources.stem(source)}")
        os.makedirs(folder, mode=0o755, exist_ok=True)
        if not self.tools.get_url(source, path) or not os.path.exists(path):
            raise errors.NotFound(f"cannot fetch {source}")
        return path

    def definition(self):
        return building.build(self.conn, self.spec, self.works, self.caps, self.warnings)


def create(conn, spec, tools):
    """Makes the guest of a GuestSpec. Returns what ``virt.init`` returns.

    Raises one of saltvirt.errors; whatever was made by then is undone.
    """
    with translated(f"create {spec.name}"):
        return Creation(conn, spec, tools).run()
