"""The boot settings of the guest."""

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.kinds import INT, YES_NO

SECURE_BOOT, ENROLLED_KEYS = "secure-boot", "enrolled-keys"


class Boot(Element):
    """``<boot>``: one class of devices to boot from."""

    TAG = "boot"

    dev = Prop("@dev")


class FirmwareFeature(Element):
    """``<feature>``: a feature that the firmware chosen by libvirt must or must not have."""

    TAG = "feature"

    enabled = Prop("@enabled", YES_NO)
    name = Prop("@name")


class InitArg(Element):
    """``<initarg>``: an argument for the init process of a container."""

    TAG = "initarg"

    text = Prop("")


class Os(Element):
    """``<os>``: firmware, kernel, order of boot devices; for containers the init process."""

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
        """Whether the firmware has secure boot; None if libvirt chooses it."""
        for feature in self.firmware_features:
            if feature.name == SECURE_BOOT:
                return bool(feature.enabled)
        return True if self.loader_secure else None

    @property
    def enrolled(self) -> bool | None:
        """Whether the firmware's variables contain keys; None if libvirt chooses it."""
        for feature in self.firmware_features:
            if feature.name == ENROLLED_KEYS:
                return bool(feature.enabled)
        return None

    @property
    def variables(self) -> str | None:
        """The file of the firmware's variables, in either of libvirt's notations; None if there is
        none, or libvirt has not chosen it yet."""
        nvram = self.node.find("nvram") if self.node is not None else None
        source = nvram.find("source") if nvram is not None else None
        return self.nvram if source is None else source.get("file")

    def set_variables(self, path: str) -> None:
        """Replace the file of the firmware's variables."""
        nvram = self.need().find("nvram")
        source = nvram.find("source") if nvram is not None else None
        if source is None:
            self.nvram = path
        else:
            source.set("file", path)

    def forget_variables(self) -> None:
        """Remove the file of the firmware's variables, in both of libvirt's notations: libvirt then
        creates new variables from the template."""
        nvram = self.node.find("nvram") if self.node is not None else None
        if nvram is not None:
            nvram.attrib.pop("type", None)
            for source in nvram.findall("source"):
                nvram.remove(source)
        self.nvram = None
