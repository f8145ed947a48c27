#!/bin/busybox sh
# The whole system of the small guest: it counts its boots on its disk, takes an address by DHCP
# for each interface, and answers over HTTP what it is and what its disks hold.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod "/modules/$module"; done
tries=0
until [ -b /dev/vda2 ] || [ $tries -gt 100 ]; do tries=$((tries + 1)); usleep 50000; done
. /disks.sh
boots=$(($(slot vda 0 | sed -n 's/^boots //p') + 1))
put vda 0 "boots $boots"
ifconfig lo 127.0.0.1
httpd -p 80 -h /www
mkdir -p /run
acpid -l /dev/null
while :; do
    for path in /sys/class/net/eth*; do
        nic=${path##*/}
        [ -e "/run/$nic" ] && continue
        [ -d "$path" ] || continue
        touch "/run/$nic"
        ifconfig "$nic" up
        udhcpc -q -n -t 60 -T 1 -A 1 -i "$nic" -s /udhcpc.sh >/dev/null 2>&1 || rm -f "/run/$nic" &
    done
    # an interface that was unplugged and plugged in again asks anew
    for mark in /run/eth*; do [ -e "/sys/class/net/${mark##*/}" ] || rm -f "$mark"; done
    usleep 300000
done
