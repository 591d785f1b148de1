"""``aliquot dra classes``: the DeviceClasses by which pods request GPUs and MIG devices, for ``kubectl apply``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aliquot.cli.dra.cluster_objects import NoSlicesError, read_slices
from aliquot.cli.dra.driver_name import driver_name
from aliquot.cli.framework import output
from aliquot.cli.framework.extras import missing_library
from aliquot.cli.framework.family_names import find_family
from aliquot.cli.framework.parser import Args
from aliquot.core.model.encoding import to_builtins

if TYPE_CHECKING:
    from aliquot.kubernetes.dra.model.objects import ResourceSlice


def run(args: Args) -> int:
    families = [find_family(name) for name in args.families or ()]
    try:
        from aliquot.kubernetes.dra.model.device_classes import device_classes, published_profiles, vm_classes
        from aliquot.kubernetes.dra.model.naming import DriverNaming

        driver = driver_name(args.dra_driver, next_step="aliquot dra classes --dra-driver gpu.aliquot.dev")
        profiles = {profile.name for family in families for profile in family.profiles}
        naming = DriverNaming(driver)
        own = () if families else _own(asyncio.run(read_slices(args.kubeconfig)), driver)
        profiles = profiles or published_profiles(own)
        classes = device_classes(naming, profiles, extended_resources=not args.claims_only)
        classes += vm_classes(naming, own)
    except ModuleNotFoundError as error:
        raise missing_library(error, "agent", "dra classes") from error
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    plain = [head | to_builtins(each) for each in classes]
    text = "\n---\n".join(output.encoded(each, "yaml") for each in plain)
    output.emit({"apiVersion": "v1", "kind": "List", "items": plain}, args.output, text)
    return 0


def _own(slices: tuple[ResourceSlice, ...], driver: str) -> tuple[ResourceSlice, ...]:
    """Return the slices of a driver. Raises NoSlicesError if they have no device."""
    own = tuple(each for each in slices if each.spec.driver == driver)
    if not any(each.spec.devices for each in own):
        raise NoSlicesError(
            f"no resource slice of driver {driver} has a GPU, so the profiles are unknown",
            next_step="aliquot dra classes h100-80gb-sxm",
        )
    return own
