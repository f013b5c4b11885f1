#!/bin/sh
# Usage: machine.sh OPTION… — boots a machine of the lab with these options of systemd-nspawn, and again whenever
# it reboots: with --keep-unit nspawn leaves that to its caller, by ending with 133.
set -u
status=133
while [ "$status" -eq 133 ]; do
    status=0
    systemd-nspawn "$@" || status=$?
done
exit "$status"
