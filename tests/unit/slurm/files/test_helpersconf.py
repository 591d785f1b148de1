"""Versions of helpers.conf per release, and the lines of CLOUD records."""

from __future__ import annotations

import pytest

from aliquot.core.model import catalog
from aliquot.errors import ConfigError
from aliquot.slurm.client.errors import OldSlurmError
from aliquot.slurm.client.models import Version
from aliquot.slurm.files import helpers_conf as helpersconf
from aliquot.slurm.layouts import cloud_nodes as cloud
from aliquot.slurm.layouts.families import FamilyError, maximal_layouts, parse_layout
from support.simnodes import Node

A100 = catalog.family("a100-40gb")
LAYOUTS = (parse_layout(A100, "2x3g.20gb"), parse_layout(A100, "4g.20gb,3g.20gb"))
NAMES = "mig_2x3g.20gb,mig_1x4g.20gb_1x3g.20gb"
PROGRAM = helpersconf.FeatureProgram("/h", reboot="/r")
OLD, MIDDLE, NEW = Version(22, 5, 8), Version(23, 11), Version(24, 11, 5)


def test_each_release_has_its_form() -> None:
    tail = (f"MutuallyExclusive={NAMES}", "BootTime=300", "ExecTime=120")
    old = helpersconf.lines("n1", LAYOUTS, PROGRAM, OLD)
    assert old == (*(f"Feature={name} Helper=/h" for name in NAMES.split(",")), *tail)
    assert helpersconf.lines("n1", LAYOUTS, PROGRAM, MIDDLE) == (f"NodeName=n1 Feature={NAMES} Helper=/h", *tail)
    new = helpersconf.lines("n1", LAYOUTS, PROGRAM, NEW)
    assert new == (f"NodeName=n1 Feature={NAMES} Helper=/h Flags=rebootless", *tail)


def test_a_release_without_rebootless_features_needs_a_reboot_program() -> None:
    assert "RebootProgram=/r" in helpersconf.keys(PROGRAM, OLD)
    assert not any(key.startswith("RebootProgram") for key in helpersconf.keys(PROGRAM, NEW))


def test_a_change_may_last_as_long_as_its_program_and_a_minute() -> None:
    slow = helpersconf.FeatureProgram("/h", exec_s=600)
    assert "ResumeTimeout=660" in helpersconf.keys(slow, NEW)


def test_users_are_named_only_where_they_are_few() -> None:
    few = helpersconf.FeatureProgram("/h", users=("alice", "bob"))
    assert "AllowUserBoot=alice,bob" in helpersconf.lines("n1", LAYOUTS, few, NEW)


def test_a_release_without_the_plugin_and_a_line_too_long_are_refused() -> None:
    with pytest.raises(OldSlurmError, match=r"21\.08"):
        helpersconf.lines("n1", LAYOUTS, PROGRAM, Version(20, 11))
    with pytest.raises(FamilyError, match="1024"):
        helpersconf.lines("n1", maximal_layouts(A100) * 2, PROGRAM, NEW)


def test_cloud_records_of_a_host() -> None:
    gpus = Node("a100-sxm4-40gb*2").read()[0].gpus
    shape = cloud.CloudNodeShape("CPUs=2 RealMemory=1000", address="10.0.0.1", first_port=27011)
    found = cloud.siblings("host1", gpus, (LAYOUTS[0], parse_layout(A100, "7x1g.5gb")), shape)
    assert [cloud.node_line(each, shape) for each in found] == [
        "NodeName=host1-2x3g-20gb NodeHostname=host1 NodeAddr=10.0.0.1 Port=27011 CPUs=2 RealMemory=1000 "
        "Gres=gpu:a100_3g.20gb:4 Feature=mig,mig_2x3g.20gb State=CLOUD",
        "NodeName=host1-7x1g-5gb NodeHostname=host1 NodeAddr=10.0.0.1 Port=27012 CPUs=2 RealMemory=1000 "
        "Gres=gpu:a100_1g.5gb:14 Feature=mig,mig_7x1g.5gb State=CLOUD",
    ]


def test_a_record_at_rest_has_its_devices_under_names_that_nothing_has() -> None:
    gpus = Node("a100-sxm4-40gb").read()[0].gpus
    lines = cloud.absent_gres_lines("n1-x", cloud.gres(gpus, parse_layout(A100, "4g.20gb,1g.5gb:3")))
    assert lines == (
        "NodeName=n1-x Name=gpu Type=a100_4g.20gb File=/dev/aliquot-absent0",
        "NodeName=n1-x Name=gpu Type=a100_1g.5gb File=/dev/aliquot-absent[1-3]",
    )


@pytest.mark.parametrize("name", catalog.family_names())
def test_every_layout_has_a_record_of_its_own(name: str) -> None:
    every = maximal_layouts(catalog.family(name), attributes=True)
    assert len({cloud.sibling_name("h", each) for each in every}) == len(every)


def test_powered_down_records_must_be_shown_by_releases_that_hide_them() -> None:
    programs = {"resume": "/r", "suspend": "/s"}
    assert "PrivateData=cloud" in cloud.keys(OLD, programs, 300)
    assert "PrivateData=cloud" not in cloud.keys(NEW, programs, 300)


@pytest.mark.parametrize(
    ("host", "layouts", "port"),
    [
        ("-x", LAYOUTS, 7000),
        ("a b", LAYOUTS, 7000),
        ("n1", LAYOUTS * 2, 7000),
        ("n1", (), 7000),
        ("n1", LAYOUTS, 65535),
    ],
)
def test_what_no_record_can_be_made_of_is_refused(host: str, layouts: tuple[object, ...], port: int) -> None:
    with pytest.raises(ConfigError):
        cloud.siblings(host, (), layouts, cloud.CloudNodeShape(first_port=port))  # type: ignore[arg-type]
