"""Weighers. Each is a module with ``score(host, request, policy)``: higher is better.

The scores of the remaining hosts are scaled to 0…1 and multiplied (``virt:placement:weights``).
They are fractions of the host's own size, because absolute sizes would fill the largest host first.
"""

from saltvirt.placement.weights import disk, image, labels, memory, spread, vcpu

ALL = {
    "memory": memory, "vcpu": vcpu, "disk": disk, "image": image, "labels": labels,
    "spread": spread,
}  # fmt: skip
