#!/bin/sh
# What the guest is, a line each. QUERY_STRING: a record that is appended to each disk first.
. /disks.sh
printf 'Content-Type: text/plain\r\n\r\n'
record=$(printf %s "$QUERY_STRING" | tr -cd '0-9')
if [ -n "$record" ]; then
    for disk in $(disks); do
        set -- $(records "$disk")
        put "$disk" $(($# + 1)) "record $record"
    done
fi
echo "uuid $(cat /sys/class/dmi/id/product_uuid)"
echo "$(slot vda 0)"
echo "cpus $(nproc)"
echo "memory_kib $(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)"
[ -d /sys/firmware/efi ] && echo "firmware uefi" || echo "firmware bios"
for path in /sys/class/net/eth*; do
    [ -d "$path" ] || continue
    nic=${path##*/}
    echo "nic $(cat "$path/address") $(ifconfig "$nic" | sed -n 's/.*inet addr:\([0-9.]*\).*/\1/p')"
done
for disk in $(disks); do
    echo "disk $disk $(cat "/sys/block/$disk/size") $(records "$disk")"
done
echo end
