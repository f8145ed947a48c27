"""A Debian root file system by mmdebstrap."""

from tests.lab.sh import run

UNWANTED = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*", "/usr/share/info/*")


def bootstrap(root, suite, packages, also_from=()):
    """Install `packages` (comma separated) of a Debian suite into the folder `root`.

    also_from: older suites to take packages from that the suite no longer has.
    """
    sources = [
        f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
        f"http://deb.debian.org/debian {name} main"
        for name in (suite, *also_from)
    ]
    excludes = [f"--dpkgopt=path-exclude={pattern}" for pattern in UNWANTED]
    run([
        "mmdebstrap", "--quiet", "--variant=minbase", "--aptopt=Acquire::Languages \"none\"",
        *excludes, f"--include={packages}", suite, root, *sources,
    ])  # fmt: skip
