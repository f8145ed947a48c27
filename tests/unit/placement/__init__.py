"""Tests of placement; its decisions are in test_choose.py."""

# virt:placement by which only the guests' own sizes count
NOTHING_BESIDE = {
    "reserved_memory_kib": 0, "reserved_memory_ratio": 0, "reserved_disk_bytes": 0,
    "overhead_kib": 0, "overhead_vcpu_kib": 0, "overhead_ratio": 0,
}  # fmt: skip
