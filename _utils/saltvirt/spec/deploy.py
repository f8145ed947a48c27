"""What is done with a guest besides its definition: image, seeding, starting."""

from dataclasses import dataclass

from saltvirt.spec import values as v
from saltvirt.spec.base import Part, key, mapping


def _anything(value, what):
    return value


@dataclass
class DeploySpec(Part):
    """Arguments of ``init`` that shape no XML."""

    NONE_REMOVES = False

    start: bool | None = key(v.boolean)
    image: str | None = key(v.text)
    image_hash: str | None = key(v.text)
    overlay: bool | None = key(v.boolean)
    enable_qcow: bool | None = key(v.boolean)
    saltenv: str | None = key(v.text)
    seed: bool | None = key(v.boolean)
    install: bool | None = key(v.boolean)
    seed_cmd: str | None = key(v.text)
    config: dict | None = key(mapping)
    pub_key: str | None = key(v.text)
    priv_key: str | None = key(v.secret, repr=False)
    grains: dict | None = key(mapping)
    pillar: dict | None = key(mapping, repr=False)
    autosign_grains: dict | None = key(mapping)
    startup_states: str | list | None = key(_anything)

    def check(self, what):
        for name in ("start", "seed", "install"):
            if getattr(self, name) is None:
                setattr(self, name, True)
        self.saltenv = self.saltenv or "base"
        self.overlay = bool(self.overlay or self.enable_qcow)
