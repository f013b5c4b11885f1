#!/bin/sh
# Usage: booted.sh CONSOLE SILENCE — wait until the guest of this console has booted, as long as the console grows.
# When it has not for SILENCE seconds, print its last lines and fail: a slow guest is waited for, one that hangs is not.
# A kernel that has panicked is waited for only until its console stands still.
set -eu
console=$1 silence=$2 size=0 silent=0
panic_silence=5
guest=$(basename "$console" -console.log)
until grep -qsi 'reached target.*multi-user' "$console"; do
    now=$(stat -c %s "$console" 2>/dev/null || echo 0)
    if [ "$now" -ne "$size" ]; then
        size=$now
        silent=0
    fi
    if [ "$silent" -ge "$panic_silence" ] && panic=$(grep -a 'Kernel panic - ' "$console" 2>/dev/null | head -n 1) &&
        [ -n "$panic" ]; then
        echo "the guest $guest does not boot: $(printf %s "$panic" | tr -s '[:cntrl:]' ' ')" >&2
        exit 1
    fi
    if [ "$silent" -ge "$silence" ]; then
        last=$(tail -n 5 "$console" 2>&1 | tr -s '[:cntrl:]' ' ')
        echo "the guest $guest hangs: its console has shown nothing new for $silence s; it ends with: $last" >&2
        exit 1
    fi
    sleep 1
    silent=$((silent + 1))
done
