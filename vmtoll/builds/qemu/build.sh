#!/bin/sh
# Usage: build.sh OUT VERSION — builds qemu-system-x86_64 of Debian's source package qemu in this VERSION, with
# the patches of this folder. It builds in the current folder, and writes the program to OUT. It changes no setting of
# the system's apt. Its last line says what is missing.
set -eu
out=$1 version=$2 here=$(cd "$(dirname "$0")" && pwd) work=$PWD

missing=
for pair in dpkg-source:dpkg-dev patch:patch gcc:gcc meson:meson ninja:ninja-build pkg-config:pkg-config; do
    command -v "${pair%:*}" >/dev/null || missing="$missing ${pair#*:}"
done
if command -v pkg-config >/dev/null; then
    for pair in glib-2.0:libglib2.0-dev pixman-1:libpixman-1-dev slirp:libslirp-dev; do
        pkg-config --exists "${pair%:*}" || missing="$missing ${pair#*:}"
    done
    [ -e /usr/include/libfdt.h ] || missing="$missing libfdt-dev"
fi
[ -z "$missing" ] || { echo "packages are missing: apt-get install$missing"; exit 1; }

# This system's own sources of packages, asked for source packages, in separate lists.
mkdir -p apt/parts apt/lists/partial apt/cache/archives/partial
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ ! -e "$file" ] || sed -n 's/^deb[[:space:]]/deb-src /p' "$file" >"apt/parts/$(basename "$file" .list).list"
done
for file in /etc/apt/sources.list.d/*.sources; do
    [ ! -e "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" >"apt/parts/$(basename "$file")"
done
get() {
    apt-get -q -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/apt/parts" \
        -o "Dir::State::Lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache" -o APT::Sandbox::User=root "$@"
}
get update
get source --download-only "qemu=$version" ||
    { echo "apt has no source package qemu $version: upgrade qemu-system-x86 to the one that it has"; exit 1; }
dpkg-source --no-check --extract ./*.dsc source
patch "$(find source/target/i386/tcg -name svm_helper.c)" "$here/svm-interrupt.patch"
patch "$(grep -rl "TSS must be a valid 32 bit one" source/target/i386/tcg)" "$here/tss-busy.patch"

# The system's Python first: it has the system's meson. The firmware is that of Debian's package: an absolute path stays
# as it is where it does not begin with the prefix. Devices: those of the lab's machines, and what these need.
cp "$here/devices.mak" source/configs/devices/x86_64-softmmu/vmtoll.mak
mkdir source/build
cd source/build
PATH=/usr/bin:$PATH ../configure --target-list=x86_64-softmmu --prefix=/nonexistent \
    --firmwarepath=/usr/share/qemu:/usr/share/seabios:/usr/lib/ipxe/qemu \
    --with-pkgversion="Debian $version with svm-interrupt.patch and tss-busy.patch of vmtoll" \
    --without-default-features --enable-system --enable-tcg --enable-plugins --enable-fdt=system --enable-slirp \
    --without-default-devices --with-devices-x86_64=vmtoll --disable-debug-info \
    --disable-install-blobs --disable-docs --disable-tools --disable-guest-agent
ninja qemu-system-x86_64
strip -o "$out" qemu-system-x86_64
