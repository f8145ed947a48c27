#!/bin/sh
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
ifconfig "$interface" "$ip" netmask "$subnet"
