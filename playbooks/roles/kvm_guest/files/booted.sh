#!/bin/sh
# Usage: booted.sh CONSOLE SILENCE — wait until the guest of this console has booted, as long as the console grows.
# When it has not for SILENCE seconds, print its last lines and fail: a slow guest is waited for, one that hangs is not.
set -eu
console=$1 silence=$2 size=0 silent=0
until grep -qsi 'reached target.*multi-user' "$console"; do
    now=$(stat -c %s "$console" 2>/dev/null || echo 0)
    if [ "$now" -ne "$size" ]; then
        size=$now
        silent=0
    fi
    if [ "$silent" -ge "$silence" ]; then
        last=$(tail -n 5 "$console" 2>&1 | tr -s '[:cntrl:]' ' ')
        echo "the guest hangs: its console has shown nothing new for $silence s; it ends with: $last" >&2
        exit 1
    fi
    sleep 1
    silent=$((silent + 1))
done
