"""The data of cloud-init for a guest: user-data, meta-data and network-config.

https://cloudinit.readthedocs.io/en/latest/reference/datasources/nocloud.html
"""

from __future__ import annotations

import base64
import email
import json
import secrets
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.seed.data import INSTALL_NEVER, minion_config, to_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from saltvirt.seed.data import Nic, SeedData

_PKI = "/etc/salt/pki/minion"
_BOOTSTRAP = "/etc/salt/salt-virt-bootstrap.sh"
_OWN_HEADER = "#cloud-config\n{"  # an operator writes YAML
# values of Salt Virt take precedence; lists are joined
_MERGE = "dict(no_replace,recurse_list)+list(append)+str(no_replace)"
_KINDS = (
    ("#cloud-config-archive", "text/cloud-config-archive"),
    ("#cloud-config", "text/cloud-config"),
    ("#include", "text/x-include-url"),
    ("#cloud-boothook", "text/cloud-boothook"),
    ("## template:", "text/jinja2"),
    ("#!", "text/x-shellscript"),
)


def _file(path: str, text: str, mode: int) -> dict[str, str]:
    content = base64.b64encode(text.encode()).decode()
    return {"path": path, "content": content, "encoding": "b64", "permissions": f"0{mode:o}"}


def _files(data: SeedData) -> Iterator[dict[str, str]]:
    """The files that seeding a disk would write."""
    config = {**minion_config(data), "pki_dir": _PKI}
    yield _file("/etc/salt/minion", to_yaml(config), 0o640)
    yield _file("/etc/salt/minion_id", data.id, 0o644)
    yield _file(f"{_PKI}/minion.pem", data.private_key, 0o400)
    yield _file(f"{_PKI}/minion.pub", data.public_key, 0o600)
    if data.master_public_key:
        yield _file(f"{_PKI}/minion_master.pub", data.master_public_key, 0o644)
    if data.master_sign_key:
        yield _file(f"{_PKI}/master_sign.pub", data.master_sign_key, 0o644)


def _start(data: SeedData) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """How the minion is started: it exists in the image, is installed from a package, or by a
    script."""
    if data.install == INSTALL_NEVER:
        commands = [["systemctl", "enable", "salt-minion"], ["systemctl", "restart", "salt-minion"]]
        return {"runcmd": commands}, []
    if data.bootstrap:
        script = _file(_BOOTSTRAP, data.bootstrap(), 0o700)
        return {"runcmd": [["sh", _BOOTSTRAP, *data.bootstrap_args.split()]]}, [script]
    return {"salt_minion": _module(data)}, []


def _module(data: SeedData) -> dict[str, Any]:
    config = {**minion_config(data), "pki_dir": _PKI}
    module = {"conf": config, "public_key": data.public_key, "private_key": data.private_key}
    return {**module, "pki_dir": _PKI}


def _names(data: SeedData) -> dict[str, Any]:
    """The guest's host names."""
    if not data.hostname:
        return {}
    names = {"preserve_hostname": False, "hostname": data.hostname.split(".", maxsplit=1)[0]}
    return {**names, "fqdn": data.hostname} if "." in data.hostname else names


def cloud_config(data: SeedData) -> dict[str, Any]:
    """The cloud-config of Salt Virt as a dict."""
    start, extra_files = _start(data)
    return {"write_files": [*_files(data), *extra_files], **start, **_names(data)}


def _text(config: Mapping[str, Any]) -> str:
    return "#cloud-config\n" + json.dumps(config, indent=1, ensure_ascii=False) + "\n"


def _kind(text: str) -> str:
    for start, kind in _KINDS:
        if text.startswith(start):
            return kind
    raise errors.InvalidInput(
        "user_data must begin with #cloud-config, #!, #include, #cloud-boothook or ## template:"
    )


def user_data(data: SeedData, extra: str | None = None) -> str:
    """The user-data: the cloud-config of Salt Virt, and the operator's own data.

    extra: the operator's text in any format of cloud-init. If it is cloud-config, cloud-init merges
    both: lists are joined, and Salt Virt's values take precedence.
    """
    own_text = _text(cloud_config(data))
    if not extra:
        return own_text
    parts = MIMEMultipart()
    for text in (own_text, extra):
        part = MIMEText(text, _kind(text).split("/")[1], "utf-8")
        part.add_header("Merge-Type", _MERGE)
        parts.attach(part)
    return parts.as_string()


def reissued(files: Mapping[str, str], data: SeedData, macs: Mapping[str, str]) -> dict[str, str]:
    """The files of a guest's volume with another identity for the same system. cloud-init treats it
    as the same instance and does not repeat what it does once per instance.

    macs: of a copy, each MAC address of the original to the copy's; an interface with a static
    address uses DHCP in the copy. Raises SeedFailed for a volume that Salt Virt did not write.
    """
    try:
        metadata = {**json.loads(files["meta-data"]), "local-hostname": data.id}
        new_files = {**files, "meta-data": json.dumps(metadata) + "\n"}
        new_files["user-data"] = _with_identity(files["user-data"], data)
        if macs and "network-config" in files:
            new_files["network-config"] = _bind_macs(files["network-config"], macs)
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise errors.SeedFailed(
            f"the cloud-init volume of {data.id} was not written by Salt Virt: {exc}"
        ) from exc
    return new_files


def _bind_macs(text: str, macs: Mapping[str, str]) -> str:
    config = json.loads(text)
    for nic in config["ethernets"].values():
        match = nic["match"]
        match["macaddress"] = macs.get(match["macaddress"], match["macaddress"])
        if nic.pop("addresses", None):
            nic.pop("routes", None)
            nic["dhcp4"] = True
    return json.dumps(config) + "\n"


def _with_identity(text: str, data: SeedData) -> str:
    """The user-data with the guest's own values replaced in the cloud-config of Salt Virt."""
    if text.startswith(_OWN_HEADER):
        return _replace_identity(text, data)
    message = email.message_from_string(text)
    for part in message.walk():
        payload = b"" if part.is_multipart() else part.get_payload(decode=True)
        part_text = payload.decode() if isinstance(payload, bytes) else ""
        if part_text.startswith(_OWN_HEADER):
            del part["Content-Transfer-Encoding"]
            part.set_payload(_replace_identity(part_text, data), "utf-8")
            return message.as_string()
    raise ValueError("the user-data has no part of Salt Virt")


def _replace_identity(text: str, data: SeedData) -> str:
    config = json.loads(text.partition("\n")[2])
    files = {file["path"]: file for file in [*config["write_files"], *_files(data)]}
    config["write_files"] = [*files.values()]
    if "salt_minion" in config:
        config["salt_minion"] = _module(data)
    config.pop("fqdn", None)
    return _text({**config, **_names(data)})


def meta_data(name: str) -> str:
    """The meta-data. Each new guest is a new instance to cloud-init."""
    metadata = {"instance-id": f"{name}-{secrets.token_hex(8)}", "local-hostname": name}
    return json.dumps(metadata) + "\n"


def network_config(nics: Iterable[Nic]) -> str:
    """The network-config, version 2, which matches interfaces by their MAC addresses.

    nics: list of dicts: ``mac``, and for a static address ``addresses`` (list of CIDR),
    ``gateways`` (list), ``nameservers`` (list), ``search`` (list). Other interfaces use DHCP.
    """
    ethernets = {}
    for number, nic in enumerate(nics):
        entry: dict[str, Any] = {"match": {"macaddress": nic["mac"]}}
        if nic.get("addresses"):
            entry["dhcp4"] = False
            entry["addresses"] = list(nic["addresses"])
            gateways = nic.get("gateways") or ()
            routes = [
                {"to": "::/0" if ":" in gateway else "0.0.0.0/0", "via": gateway}
                for gateway in gateways
            ]
            if routes:
                entry["routes"] = routes
        else:
            entry["dhcp4"] = True
        servers = {"addresses": nic.get("nameservers"), "search": nic.get("search")}
        if any(servers.values()):
            entry["nameservers"] = {key: value for key, value in servers.items() if value}
        ethernets[f"nic{number}"] = entry
    return json.dumps({"version": 2, "ethernets": ethernets}) + "\n"
