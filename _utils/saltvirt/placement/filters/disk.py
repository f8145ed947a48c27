"""Room in the images folder, for the virtual size and by ratio."""

from saltvirt.units import human_bytes


def reason(host, request, policy):
    free = max(0, host.free_disk_bytes(policy))
    if request.disk_bytes > free:
        return f"{human_bytes(request.disk_bytes)} of disk wanted, {human_bytes(free)} free"
    return None
