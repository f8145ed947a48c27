"""Limits of a disk's throughput and operations."""

from saltvirt.xml.base import Element, Prop
from saltvirt.xml.kinds import INT


class IoTune(Element):
    """``<iotune>``; bytes or operations per second, and the length of bursts in seconds."""

    TAG = "iotune"

    total_bytes_sec = Prop("total_bytes_sec", INT)
    read_bytes_sec = Prop("read_bytes_sec", INT)
    write_bytes_sec = Prop("write_bytes_sec", INT)
    total_iops_sec = Prop("total_iops_sec", INT)
    read_iops_sec = Prop("read_iops_sec", INT)
    write_iops_sec = Prop("write_iops_sec", INT)
    total_bytes_sec_max = Prop("total_bytes_sec_max", INT)
    read_bytes_sec_max = Prop("read_bytes_sec_max", INT)
    write_bytes_sec_max = Prop("write_bytes_sec_max", INT)
    total_iops_sec_max = Prop("total_iops_sec_max", INT)
    read_iops_sec_max = Prop("read_iops_sec_max", INT)
    write_iops_sec_max = Prop("write_iops_sec_max", INT)
    size_iops_sec = Prop("size_iops_sec", INT)
    group_name = Prop("group_name")
    total_bytes_sec_max_length = Prop("total_bytes_sec_max_length", INT)
    read_bytes_sec_max_length = Prop("read_bytes_sec_max_length", INT)
    write_bytes_sec_max_length = Prop("write_bytes_sec_max_length", INT)
    total_iops_sec_max_length = Prop("total_iops_sec_max_length", INT)
    read_iops_sec_max_length = Prop("read_iops_sec_max_length", INT)
    write_iops_sec_max_length = Prop("write_iops_sec_max_length", INT)
