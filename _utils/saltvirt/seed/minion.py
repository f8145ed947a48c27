"""Build a guest's minion configuration from that of its hypervisor's minion."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, overload

from saltvirt import errors, settings
from saltvirt.seed import backends, cloudinit, keys, nocloud
from saltvirt.seed.data import (
    INSTALL_AT_BOOT,
    INSTALL_BY_CLOUD_INIT,
    INSTALL_IN_IMAGE,
    INSTALL_NEVER,
    Nic,
    SeedData,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future

T = TypeVar("T")


@dataclass
class SeedRequest:
    """The caller's request for one guest.

    config: minion options. grains, autosign_grains, startup_states: see SeedData. pub_key,
    priv_key: PEM or absolute paths of files; both or neither. install: a minion may be installed.
    prep_install: install it at the first boot. same_system: the same system with another name,
    which keeps its machine-id and SSH host keys.
    """

    config: dict[str, Any] = field(default_factory=dict)
    grains: dict[str, Any] = field(default_factory=dict)
    autosign_grains: dict[str, Any] = field(default_factory=dict)
    startup_states: str | list[str] | None = None
    pub_key: str | None = None
    priv_key: str | None = field(default=None, repr=False)
    install: bool = True
    prep_install: bool = False
    same_system: bool = False


@overload
def _text(value: str, label: str) -> str: ...
@overload
def _text(value: None, label: str) -> None: ...
@overload
def _text(value: str | None, label: str) -> str | None: ...
def _text(value: str | None, label: str) -> str | None:
    """Return the PEM, which is given as text or as the absolute path of its file."""
    if value and str(value).startswith("/"):
        try:
            with open(value, encoding="utf-8") as file:
                return file.read()
        except OSError as exc:
            raise errors.InvalidInput(f"{label}: cannot read {value}: {exc.strerror}") from exc
    return value


def _macs(nics: Iterable[Nic]) -> dict[str, str]:
    """Of a copy, each MAC address of the original to the copy's."""
    return {nic["original_mac"]: nic["mac"] for nic in nics if nic.get("original_mac")}


class Hypervisor:
    """Builds SeedData from a SeedRequest and the hypervisor's own minion.

    call: ``__salt__`` of the hypervisor's minion. opts: its options.
    """

    def __init__(self, call: Mapping[str, Callable[..., Any]], opts: Mapping[str, Any]) -> None:
        self._call = call
        self._opts = opts
        self._pending_pair: Future[tuple[str, str]] | None = None
        self._volume = False  # the guest has one: cloud-init installs its minion

    def _set(self, read: Callable[..., T], key: str, *default: Any) -> T:
        """The setting ``virt:seed:<key>``. read: a function of settings."""
        return read(self._call["config.get"], f"seed:{key}", *default)

    def bootstrap(self) -> str:
        """The text of the bootstrap script: ``virt:seed:bootstrap``, or else Salt's own."""
        script = self._set(settings.text, "bootstrap")
        if script and script.startswith("salt://"):
            script = self._call["cp.cache_file"](script)
        elif not script:
            script = self._fetch_bootstrap()
        text = _text(script or "/nonexistent", "virt:seed:bootstrap")
        if not text.startswith("#!"):
            raise errors.SeedFailed(f"the bootstrap script {script} is not a script")
        return text

    def _fetch_bootstrap(self) -> str:
        try:
            script: str = self._call["config.gather_bootstrap_script"]()
        except OSError as exc:
            raise errors.SeedFailed(
                f"cannot fetch Salt's bootstrap script: {exc}; set virt:seed:bootstrap to "
                "use another one"
            ) from exc
        return script

    def _pair(self, request: SeedRequest) -> tuple[str, str]:
        if bool(request.pub_key) != bool(request.priv_key):
            raise errors.InvalidInput("give both pub_key and priv_key, or neither")
        if request.priv_key:
            return keys.pair(_text(request.priv_key, "priv_key"), _text(request.pub_key, "pub_key"))
        if self._pending_pair:
            return self._pending_pair.result()
        return keys.generate(self._keysize())

    def _keysize(self) -> int:
        return self._set(settings.integer, "keysize", keys.DEFAULT_BITS)

    def begin(self, request: SeedRequest) -> None:
        """Start to generate the guest's keys in the background. Its disk and its cloud-init volume
        get the same pair."""
        if not request.priv_key:
            self._pending_pair = keys.begin(self._keysize())

    def _own_key(self, name: str) -> str | None:
        """A key of the master that the hypervisor's minion has stored."""
        try:
            with open(os.path.join(self._opts["pki_dir"], name), encoding="utf-8") as file:
                return file.read()
        except OSError:
            return None

    def _install(self, request: SeedRequest) -> str:
        if self._volume:
            return INSTALL_BY_CLOUD_INIT
        if not request.install and not request.prep_install:
            return INSTALL_NEVER
        kinds = (INSTALL_IN_IMAGE, INSTALL_AT_BOOT)
        kind = self._set(settings.choice, "install", INSTALL_IN_IMAGE, kinds)
        at_boot = request.prep_install or kind == INSTALL_AT_BOOT
        return INSTALL_AT_BOOT if at_boot else INSTALL_IN_IMAGE

    def config(self, request: SeedRequest) -> dict[str, Any]:
        """The minion options: ``virt:seed:config``, overridden by the caller's, then the
        hypervisor's own master."""
        config = {**self._set(settings.mapping, "config"), **(request.config or {})}
        config.setdefault("master", self._opts.get("master"))
        return config

    def data(self, name: str, request: SeedRequest) -> SeedData:
        """The SeedData of the guest ``name``. Raises InvalidInput."""
        config = self.config(request)
        is_own_master = config["master"] == self._opts.get("master")
        private, public = self._pair(request)
        new = not request.same_system
        return SeedData(
            id=name,
            private_key=private,
            public_key=public,
            master=config.pop("master"),
            config=config,
            master_public_key=self._own_key("minion_master.pub") if is_own_master else None,
            master_sign_key=self._own_key("master_sign.pub") if is_own_master else None,
            grains=request.grains or {},
            startup_states=request.startup_states,
            autosign_grains=request.autosign_grains or {},
            hostname=name,
            reset_machine_id=new and self._set(settings.boolean, "reset_machine_id", True),
            reset_ssh_keys=new and self._set(settings.boolean, "reset_ssh_keys", True),
            install=self._install(request),
            bootstrap=self.bootstrap,
            bootstrap_args=self._set(settings.text, "bootstrap_args", ""),
        )

    def apply(
        self,
        name: str,
        path: str,
        format: str | None,
        request: SeedRequest,
        nics: Iterable[Nic] = (),
        report: Callable[[str], object] | None = None,
    ) -> str:
        """Seed a disk or folder, and return the guest's public key (PEM).

        nics: the guest's interfaces, see network.configure. report: see SeedData. Raises
        SeedFailed, InvalidInput, Unsupported.
        """
        nics = list(nics)
        data = dataclasses.replace(self.data(name, request), nics=nics, macs=_macs(nics))
        data = dataclasses.replace(data, report=report) if report else data
        backend = self._set(settings.choice, "backend", backends.AUTO, backends.BACKENDS)
        backends.apply(path, format, data, backend)
        return data.public_key

    def cloud_init(
        self,
        name: str,
        path: str,
        nics: Iterable[Nic],
        request: SeedRequest,
        extra: str | None = None,
    ) -> str:
        """Create the cloud-init volume at ``path``, and return the guest's public key (PEM).

        nics, extra: see cloudinit.network_config and cloudinit.user_data. A bootstrap script is
        used only if ``virt:seed:bootstrap`` is set, otherwise the package. Raises SeedFailed,
        InvalidInput, Unsupported.
        """
        data = self.data(name, request)
        if not self._set(settings.text, "bootstrap"):
            data = dataclasses.replace(data, bootstrap=None)
        files = {
            "user-data": cloudinit.user_data(data, extra),
            "meta-data": cloudinit.meta_data(name),
        }
        if nics:
            files["network-config"] = cloudinit.network_config(nics)
        nocloud.write(path, files)
        return data.public_key

    def reissue(
        self, name: str, old: str, path: str, request: SeedRequest, nics: Iterable[Nic] = ()
    ) -> None:
        """Create the volume ``path`` from the volume ``old`` with another identity; the disk that
        is seeded next gets the same one. Raises SeedFailed, InvalidInput, Unsupported."""
        self._volume = True
        files = nocloud.read(old)
        nocloud.write(path, cloudinit.reissued(files, self.data(name, request), _macs(nics)))
