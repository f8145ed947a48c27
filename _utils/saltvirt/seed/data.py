"""The data with which a guest's disk is prepared."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt import errors, names

INSTALL_IN_IMAGE, INSTALL_AT_BOOT, INSTALL_NEVER = "image", "boot", "never"
INSTALL_BY_CLOUD_INIT = "cloud-init"  # if the image has none

# an interface of the guest: mac, and optionally addresses (CIDR), gateways, nameservers, search,
# and original_mac if the guest is a copy
Nic = Mapping[str, Any]


def _ignore(_text: str) -> None:
    """The default of ``report``."""


@dataclass(frozen=True)
class SeedData:
    """Everything that is written to one guest.

    id: the minion id. private_key, public_key: PEM of its own pair. master: a name or address, or a
    list of them. config: further minion options. master_public_key: PEM of the one master that the
    guest trusts. master_sign_key: PEM of master_sign.pub, for masters that sign. grains: dict of
    static grains. startup_states: ``highstate`` or ``top``, or a list of states. autosign_grains:
    dict of grains named in the master's autosign_grains. hostname: None keeps the image's.

    install: what to do if there is no minion: ``image`` runs ``bootstrap`` inside the image,
    ``boot`` at the first boot, ``cloud-init`` leaves it to that. bootstrap: returns the script's
    text, called only if needed. nics: see network.configure. macs: of a copy, each MAC address of
    the original to the copy's. report: called with messages for the operator.
    """

    id: str
    private_key: str = field(repr=False)
    public_key: str
    master: str | list[str] | None = None
    config: dict[str, Any] = field(default_factory=dict)
    master_public_key: str | None = None
    master_sign_key: str | None = None
    grains: dict[str, Any] = field(default_factory=dict)
    startup_states: str | list[str] | None = None
    autosign_grains: dict[str, Any] = field(default_factory=dict)
    hostname: str | None = None
    reset_machine_id: bool = True
    reset_ssh_keys: bool = True
    install: str = INSTALL_NEVER
    bootstrap: Callable[[], str] | None = None
    bootstrap_args: str = ""
    nics: list[Nic] = field(default_factory=list)
    macs: Mapping[str, str] = field(default_factory=dict)
    report: Callable[[str], object] = _ignore

    def __post_init__(self) -> None:
        names.guest(self.id)
        if self.hostname is not None:
            names.guest(self.hostname)
        choices = (INSTALL_IN_IMAGE, INSTALL_AT_BOOT, INSTALL_NEVER, INSTALL_BY_CLOUD_INIT)
        if self.install not in choices:
            raise errors.InvalidInput(f"install must be image, boot or never, not {self.install!r}")


def minion_config(data: SeedData) -> dict[str, Any]:
    """The minion's configuration as a dict; values of SeedData take precedence over ``config``."""
    config = dict(data.config)
    grains = {**(config.get("grains") or {}), **data.grains, **data.autosign_grains}
    config["id"] = data.id
    if data.master:
        config["master"] = data.master
    if grains:
        config["grains"] = grains
    if data.autosign_grains:
        config["autosign_grains"] = sorted(data.autosign_grains)
    if isinstance(data.startup_states, (list, tuple)):
        config["startup_states"] = "sls"
        config["sls_list"] = list(data.startup_states)
    elif data.startup_states:
        config["startup_states"] = data.startup_states
    return config


def to_yaml(config: Mapping[str, Any]) -> str:
    """YAML of a dict of plain data: one option per line, its value as JSON, which is valid YAML.

    Raises InvalidInput for a value that is not plain data.
    """
    lines = ["# Written by Salt Virt when this guest was created."]
    for option, value in sorted(config.items()):
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError) as exc:
            raise errors.InvalidInput(f"minion option {option!r}: {exc}") from exc
        lines.append(f"{json.dumps(str(option), ensure_ascii=False)}: {text}")
    return "\n".join(lines) + "\n"
