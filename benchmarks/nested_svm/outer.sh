#!/bin/bash
# In the emulated host: boots the inner guest under KVM and sends it requests in windows. The last line that it prints
# begins with RESULT; then it resets the machine.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
end() {
    echo "RESULT $*"
    sleep 1
    echo b >/proc/sysrq-trigger
    sleep 100
}
monitor() { # prints QEMU's answers to these commands
    exec 3<>/dev/tcp/127.0.0.1/5555
    for command in "$@"; do
        echo "$command" >&3
        sleep .2
    done
    timeout 2 cat <&3 | tr -d '\r'
    exec 3>&-
}

mount -t tmpfs tmpfs /run
mkdir /run/netns
modprobe -a kvm_amd vhost_net tun bridge veth
echo 0 >/sys/module/kvm/parameters/halt_poll_ns
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
echo "host up: $(uname -r), $(qemu-system-x86_64 --version | head -n 1)"
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
qemu-system-x86_64 -M q35 -accel kvm -cpu host -m 512 -smp 1 -nodefaults -display none -no-reboot \
    -serial file:/tmp/guest.log -monitor tcp:127.0.0.1:5555,server,nowait \
    -kernel kernel -initrd guest.initrd -append "console=ttyS0 quiet nokaslr" \
    -netdev tap,id=n,ifname=tap0,script=no,downscript=no,vhost=on -device virtio-net-pci,netdev=n &
client=(ip netns exec client ./client)
for attempt in $(seq 15); do
    if timeout 1 "${client[@]}" 1 0 0 2>/dev/null; then break; fi
    [ "$attempt" -lt 15 ] || end "the inner guest never answered: $(tail -n 1 /tmp/guest.log)"
    sleep 2
done
echo "guest up"
sleep 3
for _ in 1 2; do
    timeout 6 "${client[@]}" 100 400 5 || {
        status=$?
        monitor stop "info registers" | grep -E "^RIP|^RSP"
        end "hung (client: $status)"
    }
done
end passed
