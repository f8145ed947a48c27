"""A backup of a domain, and the checkpoint that is created with it."""

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.kinds import INT, YES_NO


class DomainBackupDisk(Element):
    """``<disk>`` of a backup."""

    TAG = "disk"

    name = Prop("@name")
    backup = Prop("@backup", YES_NO)
    mode = Prop("@backupmode")
    incremental = Prop("@incremental")
    export = Prop("@exportname")
    bitmap = Prop("@exportbitmap")
    type = Prop("@type")
    driver_type = Prop("driver/@type")
    scratch_file = Prop("scratch/@file")


class DomainBackup(Element):
    """``<domainbackup>``."""

    TAG = "domainbackup"

    mode = Prop("@mode")
    transport = Prop("server/@transport")
    socket = Prop("server/@socket")
    disks = Children("disks/disk", DomainBackupDisk)


class CheckpointDisk(Element):
    """``<disk>`` of a checkpoint."""

    TAG = "disk"

    name = Prop("@name")
    checkpoint = Prop("@checkpoint")
    bitmap = Prop("@bitmap")
    size_bytes = Prop("@size", INT)


class Checkpoint(Element):
    """``<domaincheckpoint>``."""

    TAG = "domaincheckpoint"

    name = Prop("name")
    description = Prop("description")
    parent = Prop("parent/name")
    creation_time_s = Prop("creationTime", INT)
    disks = Children("disks/disk", CheckpointDisk)
