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
# libvirt's QEMU driver wants its user to exist, even when it is told to use another; only a system-wide libvirt brings it.
cp /etc/passwd /etc/group "$folder/"
grep -q ^libvirt-qemu: "$folder/passwd" || echo libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin >>"$folder/passwd"
grep -q ^libvirt-qemu: "$folder/group" || echo libvirt-qemu:x:64055: >>"$folder/group"
mount --bind "$folder/passwd" /etc/passwd
mount --bind "$folder/group" /etc/group
exec /usr/sbin/libvirtd --pid-file /run/libvirt/libvirtd.pid
