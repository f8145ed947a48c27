"""The pillar of a master without its daemons: Salt's own compilation in folders of a test."""

import os
from pathlib import Path

import salt.config
import salt.pillar
import salt.utils.args

ROOT = Path(__file__).resolve().parents[2]


class Master:
    """``pillar(id, …)`` is what the master answers to that minion's request."""

    def __init__(self, folder, **virt):
        self.folder = folder
        self.pki = folder / "pki"
        extmods = folder / "extmods"
        for name, source in (("pillar", "_pillar"), ("utils", "_utils")):
            (extmods / name).parent.mkdir(parents=True, exist_ok=True)
            (extmods / name).symlink_to(ROOT / source)
        for status in ("minions", "minions_pre", "minions_rejected", "minions_denied"):
            (self.pki / status).mkdir(parents=True, exist_ok=True)
        self.opts = salt.config.master_config(None)
        self.opts.update(
            root_dir=str(folder),
            pki_dir=str(self.pki),
            cachedir=str(folder / "cache"),
            sock_dir=str(folder / "sock"),
            extension_modules=str(extmods),
            file_roots={"base": []},
            pillar_roots={"base": []},
            fileserver_backend=["roots"],
            key_cache="",
            minion_data_cache=True,
            virt=virt,
        )

    @property
    def store(self):
        return self.pki / "libvirt"

    def accept(self, *hosts):
        for host in hosts:
            (self.pki / "minions" / host).write_text("key")
        return self

    def pillar(self, minion, ext=None, grains=None, override=None):
        """What Salt's worker process compiles for the request."""
        compiled = salt.pillar.Pillar(
            self.opts,
            {**(grains or {}), "id": minion},
            minion,
            "base",
            ext=ext,
            pillar_override=override,
        ).compile_pillar()
        return dict(compiled)

    def ext(self, minion):
        """``pillar.ext`` as that minion has it."""
        return lambda external: self.pillar(minion, ext=external)


def tree(folder):
    """Every file below the folder with its content."""
    return {
        str(Path(base, name).relative_to(folder)): Path(base, name).read_bytes()
        for base, _dirs, names in os.walk(folder)
        for name in names
        if name != ".lock"
    }
