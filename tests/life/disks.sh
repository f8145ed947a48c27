# Slots of 512 bytes with a line each: in the second partition of the boot disk, and 1 MiB into
# every other disk. Slot 0 of the boot disk counts its boots; records begin at slot 1.
LIMIT=60

device() { if [ "$1" = vda ]; then echo /dev/vda2; else echo "/dev/$1"; fi; }

start() { if [ "$1" = vda ]; then echo 0; else echo 2048; fi; }

slot() { # DISK NUMBER
    dd if="$(device "$1")" bs=512 skip=$(($(start "$1") + $2)) count=1 2>/dev/null | tr -d '\0'
}

put() { # DISK NUMBER LINE
    printf '%s\n' "$3" | dd of="$(device "$1")" bs=512 seek=$(($(start "$1") + $2)) conv=sync,notrunc,fsync 2>/dev/null
}

records() { # DISK: what its records say, in their order
    # a cache of ours would hide what came onto the disk past it
    blockdev --flushbufs "$(device "$1")"
    dd if="$(device "$1")" bs=512 skip=$(($(start "$1") + 1)) count=$LIMIT 2>/dev/null | tr -d '\0' |
        sed -n 's/^record //p' | tr '\n' ' '
}

disks() { for path in /sys/block/vd*; do [ -e "$path" ] && echo "${path##*/}"; done; }
