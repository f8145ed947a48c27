"""The layers of a machine's root, from the cache or newly built."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.lab import cache
from tests.lab.build import empty_os, guest, host_os, salt, shared, wheels

HERE = Path(__file__).parent / "build"
DEBIAN = HERE / "debian.py"


@dataclass(frozen=True)
class Layers:
    """Folders to stack: Debian, then Salt, then what shows the guest image."""

    host_os: Path
    salt: Path
    guest: Path
    empty_os: Path | None = None
    shared: Path | None = None

    @property
    def image(self):
        """The guest image, a qcow2 file."""
        return self.guest / "debian.qcow2"

    def below(self, kind):
        """The lower layers of a machine of a kind ("master", "hypervisor", "empty"), top first."""
        if kind == "empty":
            return (self.salt / "layer", self.empty_os)
        between = (self.shared / "layer",) if self.shared else ()
        return (self.guest / kind, self.salt / "layer", *between, self.host_os)


def layers(recipe, say=lambda text: None, empty=False, network_storage=False):
    """Build what the cache lacks, side by side where one build does not need another.

    empty: also the root of machines that are no hypervisors yet. network_storage: also the layer
    with a server and a client of it.
    """
    names = keys(recipe)
    with ThreadPoolExecutor() as pool:
        jobs = {
            "wheels": lambda part: wheels.build(part, recipe),
            "host_os": lambda part: host_os.build(part, recipe),
            "guest_os": guest.build_os,
        }
        if empty:
            jobs["empty_os"] = lambda part: empty_os.build(part, recipe)
        started = {n: pool.submit(cache.built, names[n], job, say) for n, job in jobs.items()}
        found = {name: job.result() for name, job in started.items()}
    found["salt"] = cache.built(
        names["salt"], lambda p: salt.build(p, found["guest_os"], found["wheels"], recipe), say
    )
    found["guest"] = cache.built(
        names["guest"], lambda part: guest.build(part, found["guest_os"], found["salt"]), say
    )
    if network_storage:
        found["shared"] = cache.built(
            names["shared"], lambda part: shared.build(part, found["host_os"]), say
        )
    return Layers(
        found["host_os"], found["salt"], found["guest"], found.get("empty_os"), found.get("shared")
    )


def keys(recipe):
    """The cache's folder names of a recipe: a change of a part changes what rests on it."""
    os_key = cache.key(DEBIAN, HERE / "host_os.py", recipe.debian)
    shared_key = cache.key(os_key, HERE / "shared.py")
    empty_key = cache.key(os_key, HERE / "empty_os.py")
    guest_os = cache.key(DEBIAN, HERE / "guest.py")
    wheel = cache.key(HERE / "wheels.py", recipe.salt_version)
    layer = cache.key(HERE / "salt.py", wheel, guest_os)
    return {
        "host_os": f"os-debian{recipe.debian}-{os_key}",
        "empty_os": f"empty-debian{recipe.debian}-{empty_key}",
        "shared": f"shared-debian{recipe.debian}-{shared_key}",
        "guest_os": f"guestos-{guest_os}",
        "wheels": f"wheels-{recipe.salt_version}-{wheel}",
        "salt": f"salt-{recipe.salt_version}-{layer}",
        "guest": f"guest-{recipe.salt_version}-{cache.key(guest_os, layer)}",
    }
