"""How the guest boots."""

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.kinds import INT, YES_NO

SECURE_BOOT = "secure-boot"


class Boot(Element):
    """``<boot>``: one class of devices to boot from."""

    TAG = "boot"

    dev = Prop("@dev")


class FirmwareFeature(Element):
    """``<feature>``: what libvirt must find, or must not, in the firmware that it chooses."""

    TAG = "feature"

    enabled = Prop("@enabled", YES_NO)
    name = Prop("@name")


class InitArg(Element):
    """``<initarg>``: an argument for the first process of a container."""

    TAG = "initarg"

    text = Prop("")


class Os(Element):
    """``<os>``: firmware, kernel, order of boot devices; for containers the first process."""

    TAG = "os"

    firmware = Prop("@firmware")
    firmware_features = Children("firmware/feature", FirmwareFeature)
    type = Prop("type")
    arch = Prop("type/@arch")
    machine = Prop("type/@machine")
    init = Prop("init")
    initargs = Children("initarg", InitArg)
    loader = Prop("loader")
    loader_readonly = Prop("loader/@readonly", YES_NO)
    loader_secure = Prop("loader/@secure", YES_NO)
    loader_type = Prop("loader/@type")
    nvram = Prop("nvram")
    nvram_template = Prop("nvram/@template")
    kernel = Prop("kernel")
    initrd = Prop("initrd")
    cmdline = Prop("cmdline")
    dtb = Prop("dtb")
    boots = Children("boot", Boot)
    bootmenu = Prop("bootmenu/@enable", YES_NO)
    bootmenu_timeout_ms = Prop("bootmenu/@timeout", INT)
    serial_console = Prop("bios/@useserial", YES_NO)
    smbios = Prop("smbios/@mode")

    @property
    def secure(self) -> bool | None:
        """Whether the firmware is one with secure boot; None where libvirt chooses."""
        for feature in self.firmware_features:
            if feature.name == SECURE_BOOT:
                return bool(feature.enabled)
        return True if self.loader_secure else None

    @property
    def variables(self) -> str | None:
        """The file of the firmware's variables, in both of libvirt's ways to write it; None without
        one, and where libvirt has not chosen it yet."""
        nvram = self.node.find("nvram") if self.node is not None else None
        source = nvram.find("source") if nvram is not None else None
        return self.nvram if source is None else source.get("file")

    def set_variables(self, path: str) -> None:
        """Names another file in the place of the one that it has."""
        nvram = self.need().find("nvram")
        source = nvram.find("source") if nvram is not None else None
        if source is None:
            self.nvram = path
        else:
            source.set("file", path)

    def forget_variables(self) -> None:
        """Takes away where the firmware's variables are, in both of libvirt's ways to write it:
        libvirt makes new ones of the template."""
        nvram = self.node.find("nvram") if self.node is not None else None
        if nvram is not None:
            nvram.attrib.pop("type", None)
            for source in nvram.findall("source"):
                nvram.remove(source)
        self.nvram = None
