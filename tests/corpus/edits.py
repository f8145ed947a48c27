"""Single edits of a guest: the arguments of ``virt.update``, and the places that they may
change."""

from dataclasses import dataclass

CONTROLLERS = "devices/controller"
RECORD = "metadata"
KINDS = ("bridge", "network", "direct", "user", "ethernet")


@dataclass(frozen=True)
class Edit:
    """One edit: the arguments, made for a guest (None where it cannot be asked), and the
    places that may be another after it.

    places: a tuple, or a function of the xml Domain.
    """

    name: str
    arguments: object
    places: object

    def asked(self, domain):
        """The arguments for this guest, or None."""
        return self.arguments(domain) if callable(self.arguments) else self.arguments

    def may_change(self, domain):
        """The places for this guest."""
        return self.places(domain) if callable(self.places) else self.places


def _larger(domain):
    return {"mem": f"{domain.memory_kib * 2}KiB"} if domain.memory_kib else None


def _balloon(domain):
    if not domain.memory_kib or domain.memory_kib < 4096:
        return None
    return {"mem": {"current": f"{domain.memory_kib // 2}KiB"}}


def _more_cpus(domain):
    return {"cpu": (domain.vcpu.maximum or 1) + 1}


def _fewer_run(domain):
    return {"cpu": {"current": 1}} if (domain.vcpu.maximum or 1) > 1 else None


# libvirt itself cuts cachetune to the CPUs that there are
CPUS = ("vcpu", "vcpus", "cputune/cachetune", "cpu/topology/@sockets", "cpu/topology/@cores",
        "cpu/topology/@threads", "cpu/topology/@dies", "cpu/topology/@clusters")  # fmt: skip


def kept(domain, *, but=None, **more):
    """The guest's own disks as `virt.update` can be told them, one with more settings."""
    found = []
    for at, disk in enumerate(domain.disks):
        wish = {"name": f"d{at}", "device": disk.device or "disk", "target": disk.target}
        if disk.target == but:
            wish.update(more)
        found.append(wish)
    return found


def _first_disk(domain):
    """The first disk that has data of its own, and a name to tell it from others."""
    hits = (
        disk
        for disk in domain.disks
        if disk.device in (None, "disk") and disk.source and disk.target
    )
    return next(hits, None)


def _disk(**settings):
    def arguments(domain):
        disk = _first_disk(domain)
        return {"disks": kept(domain, but=disk.target, **settings)} if disk else None

    return arguments


def _on_disk(*parts):
    def places(domain):
        path = f"devices/disk[{_position(domain)}]"
        # libvirt has a controller for each disk, whether it is written or not
        return (*(f"{path}/{part}" for part in parts), CONTROLLERS)

    return places


def _position(domain):
    first = _first_disk(domain)
    return 1 + [disk.node for disk in domain.disks].index(first.node)


def _less(domain):
    if not len(domain.disks):
        return None
    if domain.disks[-1].type == "block" and len(domain.disks) > 1:
        return None  # a block device goes with an empty list only
    return {"disks": kept(domain)[:-1]}


def _one_more(domain):
    taken = {disk.target for disk in domain.disks}
    new = {"name": "more", "target": "vdz", "model": "virtio", "format": "raw"}
    if "vdz" in taken:
        return None
    return {"disks": [*kept(domain), {**new, "source_file": __file__}]}


def _nics(domain):
    found = []
    for at, nic in enumerate(domain.interfaces):
        wish = {"name": f"n{at}"}
        if nic.mac:
            wish["mac"] = nic.mac
        elif nic.type in KINDS and nic.source:
            wish.update(type=nic.type, source=nic.source)
        else:
            return None
        if wish.keys() == {"name", "type", "source"} and any(
            one.get("source") == wish["source"] for one in found
        ):
            return None  # two that nothing tells apart
        found.append(wish)
    return found


def _more_nics(domain):
    there = _nics(domain)
    new = {"name": "more", "type": "bridge", "source": "br9", "mac": "52:54:00:99:99:99"}
    return None if there is None else {"interfaces": [*there, new]}


def _fewer_nics(domain):
    there = _nics(domain)
    return {"interfaces": there[:-1]} if there else None


def _nic(**settings):
    def arguments(domain):
        there = _nics(domain)
        return {"interfaces": [{**there[0], **settings}, *there[1:]]} if there else None

    return arguments


def _last(name, tag=None):
    def places(domain):
        return (f"devices/{tag or name}[{len(getattr(domain, name + 's')) or 1}]",)

    return places


def _last_disk(domain):
    return (f"devices/disk[{len(domain.disks)}]", CONTROLLERS, RECORD)


def _new_disk(domain):
    return (f"devices/disk[{len(domain.disks) + 1}]", CONTROLLERS)


def _new_nic(domain):
    return (f"devices/interface[{len(domain.interfaces) + 1}]",)


def _boot_order(domain):
    """The next free number, which no device has."""
    disk = _first_disk(domain)
    if disk is None or disk.boot_order:
        return None
    taken = [int(node.get("order", 0)) for node in domain.need().iterfind("devices/*/boot")]
    return {"disks": kept(domain, but=disk.target, boot_order=max(taken, default=0) + 1)}


def _order_places(domain):
    return ("os/boot", *_on_disk("boot")(domain))


# a clock is said as a whole
CLOCK = ("clock/@offset", "clock/@timezone", "clock/@adjustment", "clock/@basis", "clock/@start")
MEMORY = ("memory", "currentMemory")
EDITS = (
    Edit("title", {"title": "another"}, ("title",)),
    Edit("description", {"description": "another"}, ("description",)),
    Edit("metadata", {"metadata": {"corpus": "1"}}, ("metadata",)),
    Edit("on_crash", {"on_crash": "preserve"}, ("on_crash",)),
    Edit("stop_on_reboot", {"stop_on_reboot": True}, ("on_reboot",)),
    Edit("memory", _larger, MEMORY),
    Edit("balloon", _balloon, MEMORY),
    Edit("locked memory", {"mem": {"locked": True}}, ("memoryBacking",)),
    Edit("memory limit", {"mem": {"hard_limit": "64g"}}, ("memtune/hard_limit",)),
    Edit("huge pages", {"mem": {"hugepages": True}}, ("memoryBacking",)),
    Edit("cpus", _more_cpus, CPUS),
    Edit("running cpus", _fewer_run, CPUS),
    Edit("cpu mode", {"cpu": {"mode": "host-passthrough"}}, ("cpu",)),
    Edit("cpu model", {"cpu": {"model": "Nehalem"}}, ("cpu",)),
    Edit("cpu feature", {"cpu": {"features": {"vmx": "disable", "none": None}}}, ("cpu",)),
    Edit("cpu shares", {"cpu": {"tuning": {"shares": 3333}}}, ("cputune/shares",)),
    Edit("cpu pin", {"cpu": {"tuning": {"vcpupin": {0: "0", 99: None}}}}, ("cputune/vcpupin",)),
    Edit("iothreads", {"cpu": {"iothreads": 7}}, ("iothreads",)),
    Edit("numa", {"numatune": {"memory": {"mode": "strict", "nodeset": "0"}}}, ("numatune",)),
    Edit("boot_dev", {"boot_dev": "network hd"},
         ("os/boot", "devices/disk/boot", "devices/interface/boot", "devices/hostdev/boot",
          "devices/redirdev/boot")),
    Edit("cmdline", {"boot": {"cmdline": "quiet"}}, ("os/cmdline",)),
    Edit("kernel", {"boot": {"kernel": "/srv/k", "initrd": "/srv/i"}}, ("os/kernel", "os/initrd")),
    Edit("efi", {"boot": {"efi": True}}, ("os",)),
    Edit("acpi", {"hypervisor_features": {"acpi": True}}, ("features/acpi",)),
    Edit("no apic", {"hypervisor_features": {"apic": False}}, ("features/apic",)),
    Edit("kvm_hidden", {"kvm_hidden": True}, ("features/kvm",)),
    Edit("clock", {"clock": {"timezone": "Europe/Berlin"}},
         CLOCK),
    Edit("timer", {"clock": {"timers": {"hpet": {"present": False}, "armvtimer": None}}},
         ("clock/timer", *CLOCK)),
    Edit("disk added", _one_more, _new_disk),
    Edit("disk removed", _less, _last_disk),
    Edit("no disks", {"disks": []}, ("devices/disk", RECORD)),
    Edit("disk cache", _disk(cache="writeback"), _on_disk("driver/@cache")),
    Edit("disk discard", _disk(discard="ignore"), _on_disk("driver/@discard")),
    Edit("disk serial", _disk(serial="S1"), _on_disk("serial")),
    Edit("disk read-only", _disk(read_only=True), _on_disk("readonly")),
    Edit("boot order", _boot_order, _order_places),
    Edit("nic added", _more_nics, _new_nic),
    Edit("nic removed", _fewer_nics, lambda d: (f"devices/interface[{len(d.interfaces)}]",)),
    Edit("nic model", _nic(model="e1000"), ("devices/interface[1]/model",)),
    Edit("nic moved", _nic(type="bridge", source="br9"),
         # what speaks of a device that was passed through goes with it
         tuple(f"devices/interface[1]/{part}"
               for part in ("@type", "source", "@managed", "driver/@name"))),
    Edit("nic unplugged", _nic(link=False), ("devices/interface[1]/link",)),
    Edit("vnc", {"graphics": {"type": "vnc", "listen": "127.0.0.1"}},
         ("devices/graphics", "devices/video", "devices/input", "devices/channel",
          "devices/redirdev", "devices/audio", CONTROLLERS)),
    Edit("no display", {"graphics": "none"},
         ("devices/graphics", "devices/channel", "devices/redirdev", "devices/audio")),
    Edit("serial", {"serials": [{"type": "pty"}]}, ("devices/serial", "devices/console")),
    Edit("no serial", {"serials": [], "consoles": []}, ("devices/serial", "devices/console")),
    Edit("console", {"consoles": [{"type": "pty"}]}, ("devices/console",)),
    Edit("tpm", {"tpm": {"model": "tpm-tis"}}, ("devices/tpm",)),
    Edit("no tpm", {"tpm": "none"}, ("devices/tpm",)),
    Edit("rng", {"rng": {"source": "/dev/random"}}, ("devices/rng",)),
    Edit("no rng", {"rng": "none"}, ("devices/rng",)),
    Edit("watchdog", {"watchdog": {"action": "pause"}}, ("devices/watchdog",)),
    Edit("no watchdog", {"watchdog": "none"}, ("devices/watchdog",)),
    Edit("no memory balloon", {"memballoon": "none"}, ("devices/memballoon", "currentMemory")),
    Edit("guest agent", {"guest_agent": True}, ("devices/channel",)),
    Edit("no guest agent", {"guest_agent": False}, ("devices/channel",)),
    Edit("no host devices", {"host_devices": []}, ("devices/hostdev",)),
)  # fmt: skip
