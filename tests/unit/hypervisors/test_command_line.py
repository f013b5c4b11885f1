"""QEMU's command line: values of both forms, switches, the sockets of its monitor."""

import json

import pytest

from vmtoll.hypervisors.command_line import parse_command_line, parse_option, split


def test_options_with_and_without_values() -> None:
    line = parse_command_line(
        ["/usr/bin/qemu-system-x86_64", "-S", "--enable-kvm", "-m", "2G", "-append", "root=/dev/vda a,b", "d.img"]
    )
    assert [(each.name, each.text) for each in line.options] == [
        ("S", ""), ("enable-kvm", ""), ("m", "2G"), ("append", "root=/dev/vda a,b"), ("hda", "d.img"),
    ]  # fmt: skip
    assert line.merged("m").get("size") == "2G"


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("device", "virtio-net-pci,netdev=n0,mq=on", {"driver": "virtio-net-pci", "netdev": "n0", "mq": "on"}),
        ("drive", "file=/a,,b.img,if=virtio", {"file": "/a,b.img", "if": "virtio"}),
        ("cpu", "kvm64,+aes,-avx,hv_time", {"model": "kvm64", "aes": "on", "avx": "off", "hv_time": "on"}),
        ("chardev", "socket,id=q,path=/q,server,nowait",
         {"backend": "socket", "id": "q", "path": "/q", "server": "on", "wait": "off"}),
        ("blockdev", '{"driver":"raw","file":{"driver":"file","filename":"/d"},"cache":{"direct":true},"n":4}',
         {"driver": "raw", "file.driver": "file", "file.filename": "/d", "cache.direct": "on", "n": "4"}),
        ("blockdev", "driver=raw,cache.direct=on", {"driver": "raw", "cache.direct": "on"}),
    ],
)  # fmt: skip
def test_values_of_both_forms(name: str, text: str, values: dict[str, str]) -> None:
    assert parse_option(name, text).values == values


def test_a_changed_option_keeps_its_form() -> None:
    pairs = parse_option("device", "e1000,netdev=n0,mac=52:54:00:00:00:01").with_values(
        {"driver": "virtio-net-pci", "mac": None}
    )
    assert pairs.text == "virtio-net-pci,netdev=n0"
    tree = parse_option("blockdev", '{"driver":"raw","file":{"driver":"file","filename":"/d"},"queues":"4"}')
    assert json.loads(tree.with_values({"cache.direct": "on", "file.size": "7"}).text) == {
        "driver": "raw", "file": {"driver": "file", "filename": "/d", "size": 7}, "queues": "4",
        "cache": {"direct": True},
    }  # fmt: skip


def test_two_commas_are_one_of_the_value() -> None:
    assert split("a=1,,2,b=3") == ["a=1,2", "b=3"]
    assert parse_option("drive", "file=/x").with_values({"file": "/a,b"}).text == "file=/a,,b"


def test_sockets_of_qmp_by_either_way() -> None:
    words = ["-qmp", "unix:/a.qmp,server=on,wait=off", "-chardev", "socket,id=m,path=/b.qmp,server=on,wait=off",
             "-mon", "chardev=m,mode=control", "-chardev", "socket,id=s,path=/serial", "-mon", "s"]  # fmt: skip
    assert parse_command_line(["qemu", *words]).qmp_sockets == ["/a.qmp", "/b.qmp"]
