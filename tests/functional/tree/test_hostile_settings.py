"""Every setting with a value of the wrong type, read by each reader: one line that names it, or a
value that can be intended."""

import dataclasses
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")
pytest.importorskip("libvirt")

import salt.utils.data

from saltvirt import settings
from saltvirt.backup.export import request as shown
from saltvirt.backup.model import policy as backup_policy
from saltvirt.console.host import relay
from saltvirt.console.master import guest_connection
from saltvirt.errors import InvalidInput, SeedFailed
from saltvirt.fleet import client, download_queue, target
from saltvirt.ha.manager import config as config_of_ha
from saltvirt.ha.model import policy
from saltvirt.host.domain import guest_lock
from saltvirt.host.node import job_steps
from saltvirt.host.provision import admission, images_folder
from saltvirt.migration import incoming_address, options
from saltvirt.migration import policy as migration_policy
from saltvirt.operations.create import init
from saltvirt.operations.journal import slots
from saltvirt.pki.authority import policy as pki_policy
from saltvirt.placement import facts
from saltvirt.placement import policy as placement_policy
from saltvirt.rights import grants
from saltvirt.seed import backends, minion
from saltvirt.spec import guest as guests
from saltvirt.spec import profiles
from saltvirt.system import file_lock
from tests.functional import hostile
from tests.functional.docs.test_manuals import CONFIGURATION

VALUES = (
    True, False, 0, 1, 7, -1, 1.5, 1e400, float("nan"), 10**400, 10**5000, "x", "7", "²", "-h",
    "a\nb", "x\x1b[2J", "a" * 300, b"7", [], [None], ["x"], [7], {}, {"x": 7}, {7: None},
    {"x": {"x": ["x"]}}, hostile.nested(250), hostile.dicts(250), {1, 2}, object(),
)  # fmt: skip


SCRIPT = str(Path(__file__).parents[2] / "lab" / "lab")
CALLS = {"cp.cache_file": lambda _path: None, "config.gather_bootstrap_script": lambda: SCRIPT}


def fleet(opts):
    found = client.Fleet.__new__(client.Fleet)
    found.opts = opts
    return found


def attempts(opts):
    return init.Init.attempts(SimpleNamespace(fleet=fleet(opts)))


def inits(opts):
    with slots.deploying(opts, print):
        pass
    shutil.rmtree(Path(opts["cachedir"]) / "virt")


def hypervisor(get):
    opts = {"master": "salt", "pki_dir": "/nonexistent"}
    return minion.Hypervisor(CALLS | {"config.get": get}, opts)


def seeds(get):
    here, wish = hypervisor(get), minion.SeedRequest(config={}, install=True)
    data = here.data("web1", wish)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "apply", lambda *_: None)
        here.apply("web1", "/nonexistent", "raw", wish)
    return data


def migrates(get):
    configured = options.configured(get)
    options.parse({}, settings.boolean(get, "tunnel", False), configured.policy)
    migration_policy.limits(2**30, configured)
    return configured


def address(get):
    own = lambda _name=None: ["10.9.0.1"]  # noqa: E731
    said = settings.option(get, "migration:address")
    incoming_address.target_address(None, said, own)
    return incoming_address.advertised(said, own)


def placement(get):
    inventoried(get)
    return admission.AdmissionConfig(get, "/nonexistent").policy()


def ha(opts):
    """One that takes part is given: without members the other settings are not read."""
    given = opts["virt"].get("ha", {})
    members = {"members": {"hv1": "10.9.0.1"}}
    return config_of_ha.of_master({**opts, "id": "m", "virt": {"ha": {**members, **given}}})


def backups(opts):
    """A target is given: without one its own settings are not read."""
    given = opts["virt"].get("backup", {})
    targets = {"targets": {"target": {"host": "b1", "folder": "/b"}}}
    return backup_policy.read(settings.of_master({"virt": {"backup": {**targets, **given}}}))


def inventoried(get):
    """What virt.inventory tells of a host's own configuration, as it is read on the master and in
    the host's own admission."""
    said = {key: settings.option(get, key, {}) for key in ("labels", "ratios", "placement")}
    return facts.host_of("hv1", facts.Inventory(1, 1, **said))


def on_minion(read):
    return lambda opts: read(
        lambda key, default=None: salt.utils.data.traverse_dict_and_list(opts, key, default)
    )


# the key, without virt:, to what reads it of a configuration
MASTER = {
    "hosts": target.expression,
    "attempts": attempts,
    "inits_at_once": inits,
    "queue_timeout": file_lock.queue_timeout_s,
    "image_copies": download_queue.at_once,
    "stall_timeout": lambda opts: fleet(opts)._limit("stall_timeout", 7),
    "job_timeout": lambda opts: fleet(opts)._limit("job_timeout", 7),
    "exclude": placement_policy.of_master,
    "placement": placement_policy.of_master,
    "placement:weights": placement_policy.of_master,
    **{f"placement:{key}": placement_policy.of_master for key in sorted(placement_policy.SETTINGS)},
    **{f"placement:weights:{key}": placement_policy.of_master for key in placement_policy.WEIGHTS},
    "migration": slots.limits,
    "migration:at_once": slots.limits,
    "migration:at_once_per_host": slots.limits,
    **{
        f"pki{key and ':'}{key}": on_minion(pki_policy.policy)
        for key in ("", "mode", "key", "ca_name", "ca_days", "days", "domain", "names", "names:hv1",
                    "trust_grains", *pki_policy.PARTS)
    },
}  # fmt: skip
MASTER |= {
    f"ha:{key}": ha
    for key in ("members", "name", "masters", "port", "pools", "leases", "reserve_policy",
                *(one.name for one in dataclasses.fields(policy.HaPolicy)))
}  # fmt: skip
MASTER |= {f"rights:{key}": grants.read for key in ("grants", "groups", "quotas", "eauth")}
MASTER["reach:addresses"] = lambda opts: guest_connection.address_of(
    settings.of_master(opts), "hv1"
)
SHOWN = ("backup:address", "backup:port", "backup:scratch_mib")
MASTER |= {key: backups for key in settings.KEYS if key.startswith("backup:") and key not in SHOWN}
PROFILED = {"name": "x", "cpu": 1, "mem": 64, "hypervisor": "qemu"}
MINION = {
    "connection": lambda get: settings.connection(get, {}),
    "connection:uri": lambda get: settings.connection(get, {}),
    "connection:auth": lambda get: settings.connection(get, {}),
    "connection:auth:username": lambda get: settings.connection(get, {}),
    "connection:auth:password": lambda get: settings.connection(get, {}),
    "connection:timeout": lambda get: settings.connection(get, {}),
    "lock": lambda get: (guest_lock.folder(get), job_steps.folder(get)),
    "overcommit": lambda get: admission.config_of(get, {}),
    "placement": placement,
    **{f"placement:{key}": placement for key in sorted(placement_policy.SETTINGS)},
    "labels": inventoried,
    "ratios": inventoried,
    **{f"ratios:{key}": inventoried for key in placement_policy.RATIOS},
    **{key: lambda get: shown.load_config(get, "hv1") for key in SHOWN},
    "reach:port": relay.port,
    "screenshots": lambda get: settings.folder(get, "screenshots", "/nonexistent"),
    "storagepool": lambda get: settings.text(get, "storagepool", "default"),
    "images": images_folder.configured,
    "disk": lambda get: guests.parse(**PROFILED, known_profiles=profiles.read(get)),
    "nic": lambda get: guests.parse(**PROFILED, known_profiles=profiles.read(get)),
    "disk:default": lambda get: guests.parse(**PROFILED, known_profiles=profiles.read(get)),
    "nic:default": lambda get: guests.parse(**PROFILED, known_profiles=profiles.read(get)),
    "tunnel": migrates,
    "migration": migrates,
    **{f"migration:{field.name}": migrates
       for field in dataclasses.fields(options.MigrationSettings) if field.name != "address"},
    "migration:address": address,
    "seed": seeds,
    **{f"seed:{key}": seeds
       for key in ("keysize", "config", "install", "reset_machine_id", "reset_ssh_keys",
                   "bootstrap_args", "backend")},
    "seed:bootstrap": lambda get: hypervisor(get).bootstrap(),
}  # fmt: skip
READERS = {
    **{f"master's {key}": (key, read) for key, read in MASTER.items()},
    **{f"minion's {key}": (key, on_minion(read)) for key, read in MINION.items()},
}


# keys of Salt's own: Salt uses them itself before anything of ours runs
SALTS = {
    *("timeout", "syndic_wait", "order_masters", "ext_pillar", "pki_dir", "cachedir", "sock_dir"),
    *("user", "minion_data_cache", "nodegroups", "file_client"),
}  # fmt: skip


# keys whose value nothing uses any more
WITHOUT_EFFECT = {"minion's migration:disks_port"}


def test_no_key_is_left_out():
    """Each that the manual has, with what reads it on each machine that does."""
    rows = {key: cells[1] for key, cells in CONFIGURATION.items() if key.startswith("virt:")}
    assert {*CONFIGURATION} - {*rows} == SALTS
    wanted = {f"master's {key[5:]}" for key, where in rows.items() if "master" in where}
    wanted |= {f"minion's {key[5:]}" for key, where in rows.items() if "host" in where}
    assert wanted - {*READERS} == WITHOUT_EFFECT
    assert {f"virt:{key}" for key in settings.KEYS} <= {*rows}


def config(key, value):
    for word in reversed(["virt", *key.split(":")]):
        value = {word: value}
    return value


@pytest.fixture(autouse=True)
def no_host(monkeypatch, tmp_path):
    monkeypatch.setattr(minion.keys, "generate", lambda bits: (str(bits), "public"))
    monkeypatch.setattr(
        images_folder.connection, "connect",
        lambda wanted: (_ for _ in ()).throw(InvalidInput("virt:images is no pool")),
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_it_is_named_in_one_line_or_can_be_meant(name, tmp_path):
    key, read = READERS[name]
    read({"virt": {}, "cachedir": str(tmp_path)})
    before = sorted(Path(tmp_path).rglob("*"))
    refused = 0
    for value in VALUES:
        opts = {**config(key, value), "cachedir": str(tmp_path)}
        try:
            read(opts)
        except (InvalidInput, SeedFailed) as exc:
            refused += 1
            text = str(exc)
            words = [*key.split(":")[-2:], "interfaces" if "nic" in key else key]
            assert any(word in text for word in words), hostile.show(value)
            assert "\n" not in text
            assert len(text) < 600
            assert "\x1b" not in text
        assert sorted(Path(tmp_path).rglob("*")) == before, hostile.show(value)
    assert refused >= 5
