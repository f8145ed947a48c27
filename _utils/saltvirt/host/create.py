"""Making a guest from what the user asked for, and perhaps an image."""

import hashlib
import os

from saltvirt import errors
from saltvirt.host import building, disks
from saltvirt.host.connection import translated
from saltvirt.host.making import Making, Wish
from saltvirt.images import sources
from saltvirt.spec.base import given

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

    def check(self):
        self.tools.say("check", "checking what was asked for")
        self.caps = building.caps_for(self.conn, self.spec)
        virt_type = building.virt_type(self.caps, self.spec)
        self.works = disks.plan(self.conn, self.spec, self.tools.gate.images_dir, virt_type)
        if self.seeded_work() and not self.tools.seeder:
            raise errors.Unsupported("this host cannot seed: give seed=False")
        disks.not_in_use(self.conn, self.works, self.spec.name)
        self.admit(self.definition())
        for warning in dict.fromkeys(self.warnings):
            self.tools.say("warning", warning)

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
