"""Device XML: libvirt's schema accepts what Aliquot writes, and Aliquot reads what libvirt writes."""

from __future__ import annotations

import shutil
import subprocess
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.libvirt import domain_xml as xml
from aliquot.libvirt import nodedev_xml as nodexml
from aliquot.libvirt.errors import LibvirtError
from aliquot.libvirt.models import MDEV, PCI, Hostdev

UUID = "c73f1fa6-489e-4834-9476-d70dabd98c40"
SHAPES = [
    *(Hostdev(MDEV, uuid=UUID, display=d, ramfb=r) for d, r in product((None, True, False), repeat=2)),
    *(Hostdev(PCI, address=a, managed=m) for a in ("0000:3b:00.4", "10000:e1:1f.7") for m in (True, False)),
]

devices = st.one_of(
    st.builds(
        Hostdev,
        kind=st.just(MDEV),
        uuid=st.uuids().map(str),
        model=st.just("vfio-pci"),
        display=st.sampled_from([None, True, False]),
        ramfb=st.sampled_from([None, True, False]),
    ),
    st.builds(
        Hostdev,
        kind=st.just(PCI),
        address=st.builds(
            "{:04x}:{:02x}:{:02x}.{:x}".format,
            st.integers(0, 0xFFFFF),
            st.integers(0, 255),
            st.integers(0, 31),
            st.integers(0, 7),
        ),
        managed=st.booleans(),
    ),
)


@given(st.lists(devices, max_size=4))
def test_what_is_written_is_read_back(wanted: list[Hostdev]) -> None:
    text = f"<domain><devices>{''.join(map(xml.build, wanted))}</devices></domain>"
    found = xml.parse_domain(text).config
    assert [_bare(h) for h in found] == [_bare(h) for h in wanted]
    again = "".join(h.text for h in found)
    assert xml.parse_domain(f"<domain><devices>{again}</devices></domain>").config == found


def _bare(hostdev: Hostdev) -> tuple[object, ...]:
    managed = hostdev.managed if hostdev.kind == PCI else False
    return hostdev.kind, hostdev.key, managed, hostdev.display, hostdev.ramfb


@pytest.mark.parametrize("hostdev", SHAPES, ids=lambda h: f"{h.kind}-{h.display}-{h.ramfb}-{h.managed}")
def test_libvirts_schema_takes_it(hostdev: Hostdev, tmp_path: Path) -> None:
    _validate(tmp_path, "domain", _domain(xml.build(hostdev)))


def test_the_validator_would_say_no(tmp_path: Path) -> None:
    broken = xml.build(SHAPES[0]).replace('model="vfio-pci"', "")
    with pytest.raises(AssertionError, match="fails to validate"):
        _validate(tmp_path, "domain", _domain(broken))


def test_the_schema_takes_node_devices(tmp_path: Path) -> None:
    # The schema is that of libvirt's output: a name comes first, which a definition need not have.
    text = nodexml.build("0000:3b:00.4", "nvidia-746", UUID).replace("<device>", "<device><name>n</name>", 1)
    capability = "<iommuGroup number='1'/>"
    _validate(tmp_path, "nodedev", text.replace("</capability>", f"{capability}</capability>"))


def _domain(device: str) -> str:
    return (
        "<domain type='qemu'><name>n</name><memory>1024</memory><os><type arch='x86_64'>hvm</type></os>"
        f"<devices>{device}</devices></domain>"
    )


def _validate(folder: Path, schema: str, text: str) -> None:
    if shutil.which("virt-xml-validate") is None or shutil.which("xmllint") is None:
        pytest.skip("virt-xml-validate or xmllint is not installed")
    path = folder / "device.xml"
    path.write_text(text)
    done = subprocess.run(["virt-xml-validate", str(path), schema], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_running_machine_has_two_sides() -> None:
    live = _domain(xml.build(SHAPES[0])).replace("<domain ", "<domain id='3' ")
    found = xml.parse_domain(live, _domain(xml.build(SHAPES[-1])))
    assert (found.id, [h.kind for h in found.live], [h.kind for h in found.config]) == (3, [MDEV], [PCI])
    assert [h.kind for h in found.hostdevs] == [PCI, MDEV]
    transient = xml.parse_domain(live, persistent=False)
    assert (transient.config, len(transient.live)) == ((), 1)


def test_other_host_devices_are_none_of_ours() -> None:
    usb = "<hostdev mode='subsystem' type='usb'><source><vendor id='0x1234'/><product id='0xbeef'/></source></hostdev>"
    lxc = "<hostdev mode='capabilities' type='misc'><source><char>/dev/input/event3</char></source></hostdev>"
    odd = "<hostdev mode='subsystem' type='pci'/>"
    assert xml.parse_domain(_domain(usb + lxc + odd)).hostdevs == ()


@pytest.mark.parametrize("text", ["", "<domain", "no xml at all"])
def test_an_answer_that_is_no_xml(text: str) -> None:
    with pytest.raises(LibvirtError, match="not valid XML"):
        xml.parse_domain(text)


def test_entities_are_not_expanded() -> None:
    # Below 8 MiB expat expands them without a limit, for each name that it reads.
    entity = f'<!DOCTYPE domain [<!ENTITY a "{"x" * 1000}">]>'
    with pytest.raises(LibvirtError, match="document type"):
        xml.parse_domain(f"{entity}<domain><name>{'&a;' * 1000}</name></domain>")
    with pytest.raises(LibvirtError, match="document type"):
        xml.parse_domain('<!DOCTYPE d [<!ENTITY a SYSTEM "file:///etc/passwd">]><domain><name>&a;</name></domain>')
    text = "<domain><name>n</name><metadata><!-- <!DOCTYPE d> --><a>&lt;!DOCTYPE</a></metadata></domain>"
    assert xml.parse_domain(text).name == "n"


@pytest.mark.parametrize("text", ["3b:00.4", "0000:3b:00", "0000:3b:00.8", "0000:3b:00.4 ", ""])
def test_what_is_no_pci_address(text: str) -> None:
    with pytest.raises(ValueError, match="not a PCI address"):
        xml.pci_parts(text)


def test_a_node_device_is_read_with_and_without_its_uuid_element() -> None:
    # Before 7.3 only the name contains the UUID. Since 7.7 the parent's name follows it.
    name = f"mdev_{UUID.replace('-', '_')}"
    kind = "<capability type='mdev'><type id='nvidia-746'/>{}<iommuGroup number='9'/></capability>"
    for full in (name, f"{name}_0000_3b_00_4"):
        for element in ("", f"<uuid>{UUID}</uuid>"):
            text = f"<device><name>{full}</name><parent>pci_0000_3b_00_4</parent>{kind.format(element)}</device>"
            found = nodexml.parse(text)
            assert found is not None
            assert (found.uuid, found.parent, found.type) == (UUID, "0000:3b:00.4", "nvidia-746")
    family = "<device><name>pci_0000_3b_00_0</name><capability type='pci'/></device>"
    assert nodexml.parse(family) is None


def test_a_definition_says_parent_type_and_uuid() -> None:
    root = ElementTree.fromstring(nodexml.build("0000:3b:00.4", "nvidia-746", UUID))
    assert root.findtext("parent") == "pci_0000_3b_00_4"
    assert root.findtext("capability/uuid") == UUID


@pytest.mark.parametrize("number", ["zz", "0x", "-1", "1_0", "9" * 5000, "0x" + "f" * 5000, "\u00b2"])
@pytest.mark.parametrize("part", ["domain", "bus", "slot", "function"])
def test_a_pci_address_that_is_none_is_an_error_of_ours(part: str, number: str) -> None:
    address = f'<address {part}="{number}"/>'
    hostdev = f'<hostdev mode="subsystem" type="pci"><source>{address}</source></hostdev>'
    with pytest.raises(LibvirtError, match="PCI address"):
        xml.parse_domain(f"<domain><devices>{hostdev}</devices></domain>")


@pytest.mark.parametrize("text", ["\ud800", "<domain>\ud800</domain>"])
def test_text_that_is_no_unicode_is_no_xml(text: str) -> None:
    with pytest.raises(LibvirtError, match="not valid XML"):
        xml.parse_domain(text)


@pytest.mark.parametrize("number", ["\u00b2", "9" * 5000])
def test_a_domain_id_that_is_no_number_is_that_of_none_that_runs(number: str) -> None:
    assert xml.parse_domain(f'<domain id="{number}"/>').id is None
