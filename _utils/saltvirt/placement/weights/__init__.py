"""Each weigher is a module with ``score(host, request, policy)``: higher is better.

The scores of the hosts that are left are scaled to 0…1 and multiplied (``virt:placement:weights``).
Fractions of the host's own size, not megabytes: else the biggest host fills first.
"""

from saltvirt.placement.weights import disk, image, labels, memory, spread, vcpu

ALL = {
    "memory": memory, "vcpu": vcpu, "disk": disk, "image": image, "labels": labels,
    "spread": spread,
}  # fmt: skip
