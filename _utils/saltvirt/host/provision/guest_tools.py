"""The hypervisor's minion in guest creation: images, seeding and progress events."""

from __future__ import annotations

import functools
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.host.node import job_steps
from saltvirt.host.provision import guest_builder
from saltvirt.images import download_slot, sources
from saltvirt.seed import keys, minion

if TYPE_CHECKING:
    from saltvirt.host.provision.admission import AdmissionConfig
    from saltvirt.spec.deploy import DeploySpec

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MinionTools:
    """Access to the hypervisor's minion.

    functions: ``__salt__``. opts: its options. ask: sends a request to the master's ext_pillar
    ``virtkey``. read: (address, saltenv, offset) -> the next bytes of a file of the master.
    """

    functions: Mapping[str, Callable[..., Any]]
    opts: Mapping[str, Any]
    ask: Callable[[object], Any]
    read: Callable[[str, str, int], bytes]

    def tools(
        self, name: str, deploy: DeploySpec, admission_config: AdmissionConfig, verb: str = "init"
    ) -> guest_builder.Tools:
        """Return the Tools for one guest.

        verb: the operation, for progress events. A rename keeps the machine-id and SSH host keys.
        """
        report_step = self._step_reporter(name, verb)
        hypervisor = minion.Hypervisor(self.functions, self.opts)
        request = _seed_request(deploy, same_system=verb == "rename")
        turn = download_slot.slot_factory(self.ask, lambda text: report_step("image", text))
        tools = guest_builder.Tools(
            admission_config=admission_config,
            download=sources.SaltFiles(self.functions, deploy.saltenv, self.read, turn),
            get_url=lambda source, target: self.functions["cp.get_url"](
                source, target, saltenv=deploy.saltenv
            ),
            begin=lambda: hypervisor.begin(request),
            medium=self._medium(deploy, hypervisor),
            report_step=report_step,
        )
        if deploy.seeds_by_us:
            tools.reissue = functools.partial(_reissue, hypervisor, request)
        tools.seeder = self._seeder(deploy, hypervisor, request, tools.warn)
        return tools

    def _step_reporter(self, name: str, verb: str) -> Callable[..., None]:
        """Return a StepReporter that fires ``salt/virt/<name>/<verb>/<step>``; it only logs without
        a master."""
        masterless = self.opts.get("file_client") == "local"
        steps_dir = job_steps.folder(self.functions["config.get"])

        def fire(step: str, message: str, **data: Any) -> None:
            log.info("%s of %s: %s", verb, name, message)
            if not masterless:
                job_steps.record_step(steps_dir, data.get("within_s", 0))
                data.update(id=name, guest=name, message=message)
                job_steps.send_step(
                    self.functions["event.send"], f"salt/virt/{name}/{verb}/{step}", data
                )

        return fire

    def _seeder(
        self,
        deploy: DeploySpec,
        hypervisor: minion.Hypervisor,
        request: minion.SeedRequest,
        warn: Callable[[str], object],
    ) -> Callable[..., str] | None:
        """Return the function (name, path, format, interfaces) -> public key that seeds a disk, or
        None."""
        if not deploy.seeds_by_us:
            return self._foreign_seeder(deploy)
        return lambda name, path, format, nics: hypervisor.apply(
            name, path, format, request, nics, warn
        )

    def _foreign_seeder(self, deploy: DeploySpec) -> Callable[..., str] | None:
        """Return a seeder that calls another Salt function, as Salt 3007 does."""
        seed_cmd = deploy.seed_cmd
        if not seed_cmd or seed_cmd not in self.functions:
            return None

        def apply(name: str, path: str, _format: object, _nics: object) -> str:
            private, public = (
                keys.generate()
                if not deploy.priv_key
                else keys.pair(deploy.priv_key, deploy.pub_key)
            )
            self.functions[seed_cmd](
                path,
                id_=name,
                config=deploy.config,
                install=deploy.install,
                pub_key=public,
                priv_key=private,
            )
            return str(public)

        return apply

    def _medium(
        self, deploy: DeploySpec, hypervisor: minion.Hypervisor
    ) -> Callable[..., str] | None:
        """Return the function (name, path, interfaces) -> public key that creates a cloud-init
        volume."""
        if not deploy.cloud_init:
            return None

        def make(name: str, path: str, nics: list[Any]) -> str:
            extra = self._user_data(deploy, name, nics)
            return str(hypervisor.cloud_init(name, path, nics, _seed_request(deploy), extra))

        return make

    def _user_data(self, deploy: DeploySpec, name: str, nics: list[Any]) -> str | None:
        """Return the caller's user-data: a text, or a file of the master rendered for the guest."""
        user_data = deploy.user_data
        if not user_data or not user_data.startswith("salt://"):
            return user_data
        with tempfile.TemporaryDirectory() as folder:
            target = f"{folder}/user-data"
            context = {"name": name, "nics": nics, "grains_of_guest": deploy.grains or {}}
            self.functions["cp.get_template"](user_data, target, "jinja", deploy.saltenv, **context)
            if not os.path.exists(target):
                raise errors.NotFound(f"user_data {user_data} does not exist or cannot be rendered")
            with open(target, encoding="utf-8") as file:
                return file.read()


def _reissue(
    hypervisor: minion.Hypervisor,
    request: minion.SeedRequest,
    name: str,
    old: str,
    path: str,
    nics: list[dict[str, Any]],
) -> None:
    hypervisor.reissue(name, old, path, request, nics)


def _seed_request(deploy: DeploySpec, same_system: bool = False) -> minion.SeedRequest:
    return minion.SeedRequest(
        config=deploy.config or {},
        install=bool(deploy.install),
        pub_key=deploy.pub_key,
        priv_key=deploy.priv_key,
        grains=deploy.grains or {},
        autosign_grains=deploy.autosign_grains or {},
        startup_states=deploy.startup_states,
        same_system=same_system,
    )
