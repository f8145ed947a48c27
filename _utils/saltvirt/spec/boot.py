"""The user's arguments for the boot of a guest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, value_or_none
from saltvirt.xml.domain.os import Os

DEVICES = ("hd", "cdrom", "network", "fd")
_URL = re.compile(r"(https?|ftp|salt|file)://\S+")


def path_or_url(value: Any, argument: str) -> str:
    """An absolute path, or a URL that Salt can fetch."""
    if _URL.fullmatch(str(value)):
        return str(value)
    return values.path(value, argument)


@dataclass
class BootSpec(Spec):
    """The ``boot`` argument."""

    kernel: str | None = key(path_or_url, xml=Os.kernel)
    initrd: str | None = key(path_or_url, xml=Os.initrd)
    cmdline: str | None = key(values.text, xml=Os.cmdline)
    loader: str | None = key(values.path)
    nvram: str | None = key(values.path)
    efi: bool | None = key(values.boolean)
    secure: bool | None = key(values.boolean)
    enrolled_keys: bool | None = key(values.boolean)

    def check(self, argument: str) -> None:
        loader, nvram = value_or_none(self.loader), value_or_none(self.nvram)
        if self.efi and (loader or nvram):
            raise InvalidInput(f"{argument}: give either efi or loader and nvram")
        if self.enrolled_keys and self.secure is False:
            raise InvalidInput(f"{argument}: enrolled_keys needs secure: True")
        if bool(loader) != bool(nvram):
            missing = "nvram" if loader else "loader"
            raise InvalidInput(f"{argument}: loader and nvram go together: {missing} is missing")


def boot_devices(value: Any, argument: str = "boot_dev") -> list[str]:
    """``network hd`` or a list as a list of boot devices."""
    device_names = value.split() if isinstance(value, str) else value
    if not isinstance(device_names, (list, tuple)):
        raise InvalidInput(f"{argument} {value!r} is not a list of boot devices")
    devices = [values.choice(*DEVICES)(word, argument) for word in device_names]
    if len(set(devices)) != len(devices):
        raise InvalidInput(f"{argument} {value!r} names a device twice")
    return devices
