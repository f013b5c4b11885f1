#!/bin/bash
# First process of the counting machine, an emulated AMD host: measures each side that plan.sh names, and resets the
# machine. Its last line begins with RESULT.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
end() {
    echo "RESULT $*"
    sleep 1
    echo b >/proc/sysrq-trigger
    sleep 100
}

measure() { # metal|guest PATH keep|close VHOST [DEVICE_OPTIONS [GUEST_PARAMETERS]]
    echo "SIDE $*"
    address=198.18.0.2 probe=
    if [ "$1" = guest ]; then
        address=198.18.0.3 probe=$tracing/hist
        "${qemu[@]}" -M q35 -accel kvm -cpu host -m 512 -smp 1 -nodefaults -display none -no-reboot \
            -serial file:/tmp/guest.log -kernel kernel -initrd guest.initrd -append "console=ttyS0 quiet nokaslr $6" \
            -netdev "tap,id=n,ifname=tap0,script=no,downscript=no,vhost=$4" -device "virtio-net-pci,netdev=n$5" &
    else
        ./lighttz --listen $address:8080 --root www --workers 1 --user 0 &
    fi
    server=$!
    attempts=0
    until timeout 1 ./client $address "$2" "$3" 1 0 0 2>/dev/null; do
        [ $((attempts += 1)) -lt 30 ] || end "the $1 never answered: $(tail -n 1 /tmp/guest.log)"
        sleep 1
    done
    sleep 3
    ./client $address "$2" "$3" "$WARM_UP" "$REQUESTS" "$WINDOWS" || end "the client failed on $1"
    # One more window for the exits by reason: the kernel's histogram of them adds instructions.
    [ -z "$probe" ] || echo hist:keys=exit_reason >$tracing/trigger
    ./client $address "$2" "$3" "$WARM_UP" "$REQUESTS" 1 $probe || end "the client failed on $1"
    [ -z "$probe" ] || echo '!hist:keys=exit_reason' >$tracing/trigger
    [ "$1" = metal ] || sed 's/^/GUEST /' /tmp/guest.log
    kill -9 $server
    wait $server 2>/dev/null
}

mount -t tmpfs tmpfs /run
mount -t tracefs tracefs /sys/kernel/tracing
tracing=/sys/kernel/tracing/events/kvm/kvm_exit
mkdir /run/netns
[ ! -d "/lib/modules/$(uname -r)" ] || modprobe -a kvm_amd vhost_net tun bridge veth # else host-init has loaded them
[ -e /dev/kvm ] || end "the host's kernel $(uname -r) has no /dev/kvm"
qemu=(qemu-system-x86_64)
[ ! -e ./qemu ] || qemu=(./qemu -L /usr/share/qemu -L /usr/share/seabios)
echo 0 >/sys/module/kvm/parameters/halt_poll_ns # polling ends by virtual time
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
echo "HOST $(uname -r), $("${qemu[@]}" --version | head -n 1)"
ip link set lo up
ip link add br0 type bridge
ip netns add client
ip link add c0 type veth peer name c1 netns client
ip link set c0 master br0 up
ip addr add 198.18.0.2/24 dev br0
ip link set br0 up
ip -n client addr add 198.18.0.1/24 dev c1
ip -n client link set c1 up
ip tuntap add tap0 mode tap vnet_hdr
ip link set tap0 master br0 up
sed 's/^/FORMAT /' $tracing/format
if [ -b /dev/vdc ]; then grep -i ' t ' /proc/kallsyms | gzip -1 >symbols && dd if=symbols of=/dev/vdc conv=sync status=none; fi
# shellcheck source=/dev/null
. ./plan.sh
end passed
