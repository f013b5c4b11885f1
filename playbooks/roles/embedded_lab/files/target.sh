#!/bin/sh
# Usage: target.sh FOLDER NAME — runs libvirtd as the KVM host NAME of the lab in FOLDER, in the namespaces it was started
# in. It has the guests' folder under the same path as the first KVM host, and other files in it.
set -eu
folder=$1 name=$2
mount --make-rprivate /
hostname "$name"
mount --bind "$folder/hosts/$name/guests" "$folder/guests"
exec "$folder/libvirt/libvirtd.sh" "$folder/hosts/$name/libvirt"
