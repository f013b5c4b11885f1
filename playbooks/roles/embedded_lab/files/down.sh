#!/bin/sh
# Usage: down.sh FOLDER — removes the embedded lab: containers, processes (by namespace), mounts, namespaces, files.
# Safe at any moment of a build that was killed; prints "removed" when there was something.
set -eu
folder=$1

namespaces() { ip netns list | awk '$1 ~ /^vmtoll-/ { print $1 }'; }
processes() { for namespace in $(namespaces); do ip netns pids "$namespace" 2>/dev/null || true; done; }
# Containers are in the machine's own podman, where the agent finds them by name.
containers() {
    command -v podman >/dev/null || return 0
    podman ps --all --quiet --filter label=vmtoll.machine --filter 'name=^vmtoll-lab-' 2>/dev/null || true
}
# What the agent of a killed run has left of the lab's container runtimes: containers, and the groups of plain processes.
sandboxes() {
    command -v podman >/dev/null || return 0
    podman ps --all --filter label=vmtoll.sandbox --format '{{.ID}} {{index .Labels "vmtoll.sandbox"}}' 2>/dev/null |
        awk -v folder="$folder/" 'index($2, folder) == 1 { print $1 }'
}
groups() {
    for own in "$folder"/runtimes/*/; do
        find /sys/fs/cgroup -maxdepth 2 -type d -name "vmtoll-$(basename "$own")" 2>/dev/null || true
    done
}
mounts() { awk -v folder="$folder/" 'index($2, folder) == 1 { print $2 }' /proc/self/mounts | sort -r; }

# $1: signal, $2: how many tenths of a second to wait until all are gone
end_processes() {
    for pid in $(processes); do kill "-$1" "$pid" 2>/dev/null || true; done
    tenths=$2
    while [ -n "$(processes)" ] && [ "$tenths" -gt 0 ]; do
        sleep 0.1
        tenths=$((tenths - 1))
    done
}

[ -n "$(namespaces)" ] || [ -d "$folder" ] || [ -n "$(containers)" ] || exit 0
# The connections that Ansible keeps open for a while would lead a lab of the same addresses into this one.
for socket in "$folder"/ssh-*; do
    [ ! -S "$socket" ] || ssh -O exit -o ControlPath="$socket" lab 2>/dev/null || true
done
for container in $(containers) $(sandboxes); do podman rm --force --time 2 "$container" >/dev/null; done
end_processes TERM 20
end_processes KILL 50
if [ -n "$(processes)" ]; then
    echo "down.sh: processes that do not end: $(processes | tr '\n' ' ')" >&2
    exit 1
fi
for group in $(groups); do rmdir "$group" 2>/dev/null || true; done
if [ -e "$folder/hugetlb" ]; then
    umount /sys/fs/cgroup/hugetlb 2>/dev/null || true
    rmdir /sys/fs/cgroup/hugetlb 2>/dev/null || true
fi
for mount in $(mounts); do umount "$mount" 2>/dev/null || umount --lazy "$mount"; done
for namespace in $(namespaces); do ip netns delete "$namespace"; done
rm -rf --one-file-system "$folder"
echo removed
