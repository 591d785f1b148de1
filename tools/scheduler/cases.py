"""Every kind of case, each from a seeded random generator; here those about claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tools.scheduler.building import CaseBuilder, cel, devices, exactly
from tools.scheduler.publication_cases import (
    constrained_first,
    faulty_pools,
    over_committed,
    reach,
    shared_pool,
    tainted_first,
    taints,
    two_drivers,
)
from tools.scheduler.tables import DOMAIN, PARENT, PRODUCTS, profile_names

from support.schedulercases import Table

JSON = dict[str, Any]
Kind = Callable[[CaseBuilder], None]
NUMA = "resource.kubernetes.io/numaNode"


def profiles(case: CaseBuilder) -> None:
    """Add and delete pods with partitions of one kind, on one to three nodes."""
    product = case.random.choice(sorted(PRODUCTS))
    for letter in "abc"[: case.random.choice((1, 1, 2, 3))]:
        case.partitioned(case.node(letter), [product] * case.random.choice((1, 2, 3)), mixed=case.random.random() < 0.5)
    classes = [case.profile_class(name) for name in profile_names(product)]
    weights = [8 // (number + 1) + 1 for number in range(len(classes))]

    def add() -> None:
        (name,) = case.random.choices(classes, weights)
        case.pod({"a": devices(exactly("gpu", name, case.random.choice((1, 1, 1, 2, 3))))})

    case.churn(9, add)


def several(case: CaseBuilder) -> None:
    """Add claims with several requests, and constraints on the GPU that they are cut from."""
    product = case.random.choice(sorted(PRODUCTS))
    case.partitioned(case.node(), [product] * 3, mixed=True)
    classes = [case.profile_class(name) for name in profile_names(product)[:3]]

    def add() -> None:
        chosen = [case.random.choice(classes) for _ in range(case.random.choice((1, 2, 3)))]
        requests = [exactly(f"r{n}", name, case.random.choice((1, 1, 2, 3))) for n, name in enumerate(chosen)]
        kind = case.random.choice(("matchAttribute", "distinctAttribute", ""))
        some = [row["name"] for row in requests if case.random.random() < 0.7]
        constraints = [{kind: PARENT, **({"requests": some} if some else {})}] if kind else []
        case.pod({"a": devices(*requests, constraints=constraints)})

    case.churn(8, add)


def alternatives(case: CaseBuilder) -> None:
    """Add requests that name alternatives in their order."""
    product = case.random.choice(sorted(PRODUCTS))
    for letter in "ab"[: case.random.choice((1, 1, 2))]:
        case.partitioned(case.node(letter), [product, product])
    classes = [case.profile_class(name) for name in profile_names(product)]

    def add() -> None:
        requests = []
        for number in range(case.random.choice((1, 1, 2))):
            rows = case.random.sample(classes, case.random.choice((2, 3)))
            options = [
                {"name": f"o{n}", "deviceClassName": name, "count": case.random.choice((1, 1, 2))}
                for n, name in enumerate(rows)
            ]
            requests.append({"name": f"r{number}", "firstAvailable": options})
        constraints = [{"matchAttribute": PARENT}] if case.random.random() < 0.3 else []
        case.pod({"a": devices(*requests, constraints=constraints)})

    case.churn(8, add)


def pods_of_claims(case: CaseBuilder) -> None:
    """Add pods that have several claims, and share claims of others."""
    case.partitioned(case.node(), ["a100", "a100"])
    case.partitioned(case.node("b"), ["a100"], mixed=True)
    classes = [case.profile_class(name) for name in profile_names("a100")]

    def add() -> None:
        names = case.random.sample("abc", case.random.choice((1, 2, 3)))
        claims = {name: devices(exactly("gpu", case.random.choice(classes))) for name in names}
        case.pod(claims)

    case.churn(5, add)
    holder = case.pod({"a": devices(exactly("gpu", classes[0]))})
    case.pod(uses=[f"{holder}-a"])
    case.pod({"x": devices(exactly("gpu", case.random.choice(classes)))}, uses=[f"{holder}-a"])


def everything(case: CaseBuilder) -> None:
    """Add requests for all devices, or for access as an administrator."""
    first, second = case.node(), case.node("b")
    case.whole(first, [case.random.randrange(4) for _ in range(4)])
    case.whole(second, [case.random.randrange(4) for _ in range(3)])
    whole = case.device_class("gpu", f"device.attributes['{DOMAIN}'].type == 'gpu'")
    numa = f"device.attributes['resource.kubernetes.io'].numaNode == {case.random.randrange(2)}"
    every: JSON = {"allocationMode": "All"}

    def add() -> None:
        more: JSON = case.random.choice(({}, {}, every, {**every, "selectors": cel(numa)}))
        constraints = case.random.choice(([], [], [{"matchAttribute": NUMA}]))
        request = exactly("gpu", whole, 1 if more else case.random.choice((1, 2)), **more)
        case.pod({"a": devices(request, constraints=constraints)})

    def watch() -> None:
        more: JSON = case.random.choice(({}, every))
        case.pod({"a": devices(exactly("gpu", whole, 1, adminAccess=True, **more))})

    for _ in range(3):
        case.churn(2, add)
        watch()


def expressions(case: CaseBuilder) -> None:
    """Add selectors that compare attributes, versions and capacities; some of them fail."""
    case.whole(case.node(), [0, 1, 2, 3, case.random.randrange(4)])
    whole = case.device_class("gpu", f"device.driver == '{DOMAIN}'")
    mine = f"device.attributes['{DOMAIN}']"
    texts = [
        f"device.capacity['{DOMAIN}'].memory.compareTo(quantity('40Gi')) >= 0",
        f"device.capacity['{DOMAIN}'].memory.isGreaterThan(quantity('30G'))",
        f"{mine}.driverVersion.isLessThan(semver('550.0.0'))",
        f"{mine}.driverVersion.major() == 570 || {mine}.driverVersion.compareTo(semver('550.0.0-alpha.1')) == 0",
        f"{mine}.driverVersion == semver('550.0.0-rc.1')",
        f"has({mine}.coherent) && {mine}.coherent",
        f"{mine}.?coherent.orValue(false) == false",
        f"{mine}.coherent",
        f"cel.bind(gpu, {mine}, gpu.type == 'gpu' && gpu.uuid.endsWith('3'))",
        f"{mine}.uuid in ['GPU-1', 'GPU-2']",
        f"{mine}.uuid.matches('^GPU-[2-4]$') && !(device.attributes['resource.kubernetes.io'].numaNode == 0)",
        f"'{DOMAIN}' in device.attributes && !('other.example.com' in device.attributes)",
        "has(device.attributes['other.example.com'].profile)",
        "device.attributes['other.example.com'].profile == '1g.5gb'",
        f"{mine}.numaNode == 1",
        f"{mine}.uuid > 3",
    ]
    case.random.shuffle(texts)
    for text in texts[:10]:
        case.delete(case.pod({"a": devices(exactly("gpu", whole, case.random.choice((1, 2)), selectors=cel(text)))}))


def extended(case: CaseBuilder) -> None:
    """Add pods with the extended resource of a class, by its own name or the implicit one."""
    case.partitioned(case.node(), ["a100", "a100"])
    resources = {}
    for profile in ("1g.5gb", "2g.10gb", "3g.20gb"):
        name = f"nvidia.com/mig-{profile}-{case.number}"
        resources[name] = case.profile_class(profile, resource=name)
    implicit = [f"deviceclass.resource.kubernetes.io/{name}" for name in resources.values()]

    def add() -> None:
        containers = []
        for _ in range(case.random.choice((1, 1, 2))):
            names = case.random.sample([*resources, *implicit], case.random.choice((1, 1, 2)))
            containers.append({"limits": {name: str(case.random.choice((1, 1, 2))) for name in names}})
        case.pod(containers=containers)

    case.churn(7, add)


KINDS: dict[str, tuple[Kind, int]] = {
    "profiles": (profiles, 6),
    "several": (several, 6),
    "alternatives": (alternatives, 4),
    "pods_of_claims": (pods_of_claims, 3),
    "taints": (taints, 5),
    "tainted_first": (tainted_first, 1),
    "constrained_first": (constrained_first, 2),
    "everything": (everything, 4),
    "expressions": (expressions, 2),
    "faulty_pools": (faulty_pools, 2),
    "over_committed": (over_committed, 2),
    "two_drivers": (two_drivers, 3),
    "reach": (reach, 2),
    "shared_pool": (shared_pool, 4),
    "extended": (extended, 4),
}
"""Each kind, and how many cases there are of it."""


def cases(tables: dict[str, Table]) -> list[JSON]:
    """Return all cases. The number of a case is its seed."""
    found: list[JSON] = []
    for name, (kind, count) in KINDS.items():
        for _ in range(count):
            case = CaseBuilder(name, 1000 + len(found), tables)
            kind(case)
            found.append(case.case())
    return found
