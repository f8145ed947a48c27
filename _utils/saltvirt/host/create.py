"""Making a guest on this host: admit, define, disks, seed, start; all of it or nothing."""

import contextlib
import time
from dataclasses import dataclass

from saltvirt import errors
from saltvirt.host import (
    admit,
    building,
    bulk,
    describe,
    disks,
    domain,
    lifecycle,
    purge,
    record,
    remove,
)
from saltvirt.host.connection import translated
from saltvirt.images import cache, sources
from saltvirt.revert import Revert


def _silent(_step, _message, **_data):
    """The progress of those who don't watch."""


@dataclass
class Tools:
    """What creating needs from outside of the library.

    gate: admit.Gate. download: images.sources.SaltFiles, for ``salt://`` images.
    seeder: (spec, path, format) -> the guest's public key (PEM), or None where the host
    cannot seed. say: (step, message, **data), called before each step.
    """

    gate: admit.Gate
    download: object = None
    seeder: object = None
    say: object = _silent


class Creation:
    """One guest being made."""

    def __init__(self, conn, spec, tools):
        self.conn = conn
        self.spec = spec
        self.tools = tools
        self.caps = None
        self.works = []
        self.dom = None
        self.undo = Revert()
        self.warnings = []

    def run(self):
        """What was made, as plain data; see ``virt.init``."""
        self.check()
        self.fetch()
        with self.undo:
            self.reserve()
            self.make_disks()
            pub_key = self.seed()
            self.finish(seeded=pub_key is not None)
            if self.spec.deploy.start:
                self.start()
            made = self.result(pub_key)
            self.undo.success()
        return made

    def check(self):
        """Everything that can be refused before anything is changed or fetched."""
        self.tools.say("check", "checking what was asked for")
        gate = self.tools.gate
        with gate.lock():
            self.clean_leftover()
        admit.name_is_free(self.conn, self.spec.name)
        self.caps = building.caps_for(self.conn, self.spec)
        virt_type = building.virt_type(self.caps, self.spec)
        self.works = disks.plan(self.conn, self.spec, gate.images_dir, virt_type)
        if self.seeded_work() and not self.tools.seeder:
            raise errors.Unsupported("this host cannot seed: give seed=False")
        disks.not_in_use(self.conn, self.works, self.spec.name)
        built = building.build(self.conn, self.spec, self.works, self.caps, self.warnings)
        admit.check(self.conn, gate, self.request(built))
        for warning in self.warnings:
            self.tools.say("warning", warning)

    def clean_leftover(self):
        """Takes away what a dead init of this name left: it is recorded as unfinished."""
        if admit.leftover(self.conn, self.spec.name):
            self.tools.say("clean", "removing what an init that died has left")
            purge.purge(self.conn, self.spec.name, self.tools.gate.cache_dir)

    def request(self, built):
        """What the guest takes of this host."""
        return admit.request_of(
            self.spec,
            built,
            disks.in_folder_bytes(self.works),
            {work.pool for work in self.works if work.pool},
        )

    def fetch(self):
        """Gets the images into the cache, and sees that each fits its disk."""
        for work in self.works:
            if not (work.make and work.spec.image):
                continue
            self.tools.say("image", f"fetching {work.spec.image}")
            work.image = cache.fetch(
                work.spec.image,
                self.tools.gate.images_dir,
                self.tools.download,
                work.spec.image_hash,
            )
            disks.fits(work)

    def reserve(self):
        """Admits the guest, and defines it so that its share of the host is taken."""
        self.tools.say("admit", "asking the host for room")
        built = building.build(self.conn, self.spec, self.works, self.caps)
        self.fill(built.record)
        with self.tools.gate.lock():
            admit.check(self.conn, self.tools.gate, self.request(built))
            self.dom = domain.define(self.conn, built.tostring())
            self.undo.push(f"undefine {self.spec.name}", self.forget)

    def fill(self, found):
        """Completes our record, marked as unfinished by this process."""
        found.created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        found.creating = record.worker()
        for image in [work.image for work in self.works if work.image][:1]:
            found.image = sources.shown(image.source)
            found.image_hash = image.sha256
        sizes = {(w.path, w.volume): w.size_bytes for w in self.works}
        for own in found.disks:
            own.size_bytes = sizes.get((own.path, own.volume))

    def forget(self):
        """Undoes the definition; the disks have undos of their own."""
        with contextlib.suppress(errors.NotFound):
            dom = domain.lookup(self.conn, self.spec.name)
            if dom.isActive():
                dom.destroy()
            remove.undefine(self.conn, dom, everything=True)

    def make_disks(self):
        """Clones the images, creates the empty disks."""
        for work in self.works:
            if work.make:
                self.tools.say("disk", f"making disk {work.spec.name}", path=work.path)
                disks.make(self.conn, work, self.undo, self.progress(work))

    def progress(self, work):
        """A callable (done, total) that says every tenth part of a copy."""
        said = [0]

        def report(done, total):
            tenth = done * 10 // total if total else 10
            if tenth > said[0]:
                said[0] = tenth
                self.tools.say("copy", f"disk {work.spec.name}: {tenth * 10} %")

        return report

    def seeded_work(self):
        """The disk that is seeded: the first one made from an image."""
        if not self.spec.deploy.seed:
            return None
        return next((w for w in self.works if w.make and w.spec.image), None)

    def seed(self):
        """Prepares the system on the image's disk; its public key, or None without seeding."""
        work = self.seeded_work()
        if work is None:
            return None
        self.tools.say("seed", f"seeding disk {work.spec.name}")
        return self.tools.seeder(self.spec, work.path, work.format)

    def finish(self, seeded):
        """The guest is whole: its record says so from now on."""
        found = record.of_domain(self.dom).copy()
        found.creating = None
        found.seeded = seeded
        with translated(f"finish {self.spec.name}"):
            record.write(self.dom, found)
            if self.spec.autostart:
                lifecycle.set_autostart(self.dom, True)

    def start(self):
        """Starts it and believes libvirt only."""
        self.tools.say("start", "starting it")
        lifecycle.start(self.dom)

    def result(self, pub_key):
        """The plain data that virt.init returns, read back from libvirt."""
        tree = bulk.tree(self.dom)
        display = describe.graphics(tree)
        return {
            "name": self.dom.name(),
            "host": self.conn.getHostname(),
            "uuid": self.dom.UUIDString(),
            "state": domain.state(self.dom),
            "disks": self.result_disks(tree),
            "nics": [
                {"mac": nic["mac"], "type": nic["type"], "source": _first(nic.get("source"))}
                for nic in describe.nics(tree).values()
            ],
            "graphics": display if display["type"] != "None" else None,
            "pub_key": pub_key,
        }

    def result_disks(self, tree):
        """What was made of the disks, as libvirt has them now."""
        works = {work.path or f"{work.pool}/{work.volume}": work for work in self.works}
        works.update({f"{w.pool}/{w.volume}": w for w in self.works if w.pool})
        found = []
        for target, disk in describe.disks(tree, {}, False).items():
            work = works.get(disk["file"])
            found.append(
                {
                    "target": target,
                    "path": work.path if work else disk["file"],
                    "format": disk.get("file format") or (work.format if work else None),
                    "size_bytes": work.size_bytes if work else None,
                }
            )
        return found


def _first(source):
    return next(iter(source.values()), None) if source else None


def create(conn, spec, tools):
    """Makes the guest of a GuestSpec. Returns what ``virt.init`` returns.

    Raises one of saltvirt.errors; whatever was made by then is undone.
    """
    with translated(f"create {spec.name}"):
        return Creation(conn, spec, tools).run()
