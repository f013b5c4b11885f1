#!/bin/sh
# Usage: libvirtd.sh FOLDER — runs libvirtd on folders of the lab, in the mount namespace it was started in.
# The machine's own libvirt, if there is one, is neither seen nor touched.
set -eu
folder=$1
mount --make-rprivate /
for pair in etc:/etc/libvirt lib:/var/lib/libvirt cache:/var/cache/libvirt log:/var/log/libvirt run:/run/libvirt; do
    mkdir -p "${pair#*:}"
    mount --bind "$folder/${pair%%:*}" "${pair#*:}"
done
exec /usr/sbin/libvirtd --pid-file /run/libvirt/libvirtd.pid
