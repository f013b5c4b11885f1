#!/bin/sh
# Usage: python ARGUMENT… — Python on the KVM host of the lab whose folder this file is in.
read -r pid <"${0%/*}/pid"
exec nsenter --target "$pid" --mount --net --uts -- python3 "$@"
