"""Cases about what is published: taints, pools, counters, nodes."""

from __future__ import annotations

from typing import Any

from tools.scheduler.building import CaseBuilder, devices, exactly
from tools.scheduler.tables import DOMAIN, PARENT, PRODUCTS, geometry_size, profile_names

JSON = dict[str, Any]


def taints(case: CaseBuilder) -> None:
    """Taint devices before and between pods; some requests tolerate it."""
    node = case.node()
    case.partitioned(node, ["a100", "a100"])
    row = {**case.slices[-1], "devices": case.listed(case.slices[-1]["devices"])}
    classes = [case.profile_class(name) for name in ("1g.5gb", "2g.10gb", "3g.20gb")]
    for size in ("9Gi", "18Gi"):
        text = f"device.capacity['{DOMAIN}'].memory.compareTo(quantity('{size}')) >= 0"
        classes.append(case.device_class(f"from-{size.lower()}", text))
    tolerations: list[JSON] = [
        {"key": "hidden", "operator": "Exists"},
        {"key": "hidden", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"operator": "Exists", "effect": "NoExecute"},
        {"key": "other", "operator": "Exists"},
    ]

    def taint() -> None:
        share = case.random.choice((0.2, 0.5, 0.8))
        effects = ("NoSchedule", "NoSchedule", "NoExecute", "None")
        rows = [
            [*entry[:3], {"taints": [{"key": "hidden", "value": "yes", "effect": case.random.choice(effects)}]}]
            if case.random.random() < share
            else entry[:3]
            for entry in row["devices"]
        ]
        case.change({**row, "devices": rows})

    def add() -> None:
        if case.random.random() < 0.4:
            taint()
        more: JSON = {"tolerations": [case.random.choice(tolerations)]} if case.random.random() < 0.4 else {}
        requests = [
            exactly(f"r{n}", case.random.choice(classes), case.random.choice((1, 1, 2)), **more)
            for n in range(case.random.choice((1, 1, 2)))
        ]
        case.pod({"a": devices(*requests)})

    taint()
    case.churn(8, add)


def tainted_first(case: CaseBuilder) -> None:
    """List tainted devices before, or after, those that a request can have on the same empty GPU."""
    case.partitioned(case.node(), ["a100"])
    row = {**case.slices[-1], "devices": case.listed(case.slices[-1]["devices"])}
    taint = {"taints": [{"key": "hidden", "effect": "NoSchedule"}]}
    small, large = case.profile_class("1g.5gb"), case.profile_class("3g.20gb")
    sized = {}
    for size in (9, 18):
        text = f"device.capacity['{DOMAIN}'].memory.compareTo(quantity('{size}Gi')) >= 0"
        sized[size] = devices(exactly("gpu", case.device_class(f"from-{size}gi", text)))
    both = devices(exactly("r0", large), exactly("r1", small))
    either = [{"name": f"o{n}", "deviceClassName": name} for n, name in enumerate((large, small))]
    wanted = [*sized.values(), both, devices({"name": "r0", "firstAvailable": either})]
    for profiles in (["1g10gb"], ["3g20gb-0"], ["3g20gb"]):
        hidden = [
            entry
            for entry in row["devices"]
            if any(f"mig-{name}" in case.tables["a100"].devices[entry[2]] for name in profiles)
        ]
        others = [entry for entry in row["devices"] if entry not in hidden]
        hidden = [[*entry, taint] for entry in hidden]
        for order in ([*hidden, *others], [*others, *hidden]):
            case.change({**row, "devices": order})
            for one in wanted:
                case.delete(case.pod({"a": one}))


def constrained_first(case: CaseBuilder) -> None:
    """Request two partitions of one GPU where the first GPU has room for one, and the second one is empty."""
    product = case.random.choice(sorted(PRODUCTS))
    case.partitioned(case.node(), [product, product])
    small, *_, large = (case.profile_class(name) for name in profile_names(product))
    one, two = exactly("gpu", small), exactly("gpu", small, 2)
    together = devices(two, constraints=[{"matchAttribute": PARENT}])
    for _ in range(geometry_size(product) - 1):
        case.pod({"a": devices(one)})
    case.pod({"a": together})
    case.pod({"a": devices(exactly("r0", small), exactly("r1", small), constraints=[{"matchAttribute": PARENT}])})
    case.pod({"a": devices(one)})
    case.delete(case.pod({"a": devices(exactly("gpu", large))}))
    case.pod({"a": together})


def faulty_pools(case: CaseBuilder) -> None:
    """Publish pools that are incomplete, of mixed generations, or invalid, and repair them."""
    node = case.node()
    case.partitioned(node, ["a30", "a30", "a30"])
    counters, first, second = case.slices
    every = case.listed(first["devices"])
    small, large = case.profile_class("1g.6gb"), case.profile_class("4g.24gb")
    one, big = devices(exactly("gpu", small)), devices(exactly("gpu", large))
    case.pod({"a": one})
    changes: list[list[JSON]] = [
        [{**second, "generation": 2}],
        [{**row, "count": 4} for row in (counters, first, second)],
        [{**first, "devices": [*every[1:], ["a30", 2, 0]]}],
        [{**second, "devices": [*second["devices"], ["a30", 7, 0]]}],
        [{**counters, "counters": counters["counters"][:2]}],
        [{**first, "devices": every[1:]}],
        [{**first, "devices": list(reversed(every))}],
        [{**row, "generation": 2} for row in (counters, first, second)],
    ]
    case.random.shuffle(changes)
    for change in changes:
        for row in change:
            case.change(row)
        for kind in (case.random.choice((one, big)), devices(exactly("gpu", small, allocationMode="All"))):
            case.delete(case.pod({"a": kind}))
        for row in (counters, first, second):
            case.change(row)
    case.pod({"a": one})


def over_committed(case: CaseBuilder) -> None:
    """Remove an allocated device from its slice, request others of its GPU, and publish it again."""
    node = case.node()
    case.partitioned(node, ["a30", "a30"])
    row = {**case.slices[-1], "devices": case.listed(case.slices[-1]["devices"])}
    classes = {name: case.profile_class(name) for name in ("1g.6gb", "4g.24gb")}
    small, large = (devices(exactly("gpu", name)) for name in classes.values())
    case.pod({"a": large})
    whole = [entry for entry in row["devices"] if "mig-4g24gb" in case.tables["a30"].devices[entry[2]]]
    case.change({**row, "devices": [entry for entry in row["devices"] if entry != whole[0]]})
    case.pod({"a": small})
    if case.random.random() < 0.5:
        case.pod({"a": small})
    case.change(row)
    case.pod({"a": small})
    case.pod({"a": large})


def two_drivers(case: CaseBuilder) -> None:
    """Publish pools of two drivers with the same name on a node, or with different names."""
    node = case.node()
    other = "gpu.aliquot.dev"
    same = case.random.random() < 0.6
    case.partitioned(node, ["a30"], pool=f"{node}-pool", prefix=f"s{case.number}-b")
    case.partitioned(
        node, ["a30"], driver=other, pool=f"{node}-{'pool' if same else 'own'}", prefix=f"s{case.number}-a"
    )
    classes = [
        case.device_class(
            f"{profile}-{driver}",
            f"device.driver == '{driver}'",
            f"device.attributes['{driver}'].profile == '{profile}'",
        )
        for driver in (DOMAIN, other)
        for profile in ("1g.6gb", "4g.24gb")
    ]
    both = case.device_class("any", "device.driver.startsWith('gpu.')")

    def add() -> None:
        names = case.random.sample([*classes, both], case.random.choice((1, 2)))
        case.pod({"a": devices(*(exactly(f"r{n}", name) for n, name in enumerate(names)))})

    case.churn(7, add)


def reach(case: CaseBuilder) -> None:
    """Publish slices for all nodes, for nodes with a label, and with a choice for each device."""
    first, second = case.node("a", labels={"zone": "1"}), case.node("b", labels={"zone": "2"})
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["2"]}]}]}
    where: list[JSON] = [{"allNodes": True}, {"nodeSelector": selector}, {"perDeviceNodeSelection": True}]
    choices: list[JSON] = [{"nodeName": first}, {"nodeName": second}, {"allNodes": True}, {"nodeSelector": selector}]
    for number, place in enumerate(where):
        row = case.whole(
            f"net{case.number}{number}", [0, 1, 2], driver=f"d{case.number}{number}.example.com", where=place
        )
        if place == where[2]:
            row["devices"] = [[*entry, case.random.choice(choices)] for entry in row["devices"]]
    case.whole(first, [0], driver=f"d{case.number}0.example.com")
    classes = [
        case.device_class(f"d{number}", f"device.driver == 'd{case.number}{number}.example.com'") for number in range(3)
    ]

    def add() -> None:
        names = case.random.sample(classes, case.random.choice((1, 1, 2)))
        case.pod({"a": devices(*(exactly(f"r{n}", name) for n, name in enumerate(names)))})

    case.churn(7, add)


def shared_pool(case: CaseBuilder) -> None:
    """Publish a pool with devices of two nodes that take from the same counters, and change it in steps."""
    first, second = case.node("a"), case.node("b")
    case.partitioned(first, ["a30", "a30"], pool=f"fabric{case.number}")
    counters, row = case.slices
    entries = case.listed(row["devices"])
    case.random.shuffle(entries)
    counters |= {"count": 3, "where": {"allNodes": True}}
    row |= {"count": 3, "devices": entries[::2]}
    other = {**row, "name": f"{row['name']}b", "where": {"nodeName": second}, "devices": entries[1::2]}
    case.slices.append(other)
    case.whole(second, [0, 1], driver="whole.example.com")
    any_size = case.device_class("any", f"device.driver == '{DOMAIN}'")
    classes = [any_size, *(case.profile_class(name) for name in profile_names("a30"))]
    whole = case.device_class("gpu", "device.driver == 'whole.example.com'")
    gpu = devices(exactly("gpu", whole, allocationMode="All"))

    def add() -> None:
        case.pod({"a": devices(exactly("gpu", case.random.choice(classes)))})

    case.churn(5, add)
    for change in ({**other, "generation": 2}, {**counters, "count": 4}):
        case.change(change)
        case.delete(case.pod({"a": gpu}))
        add()
        for old in (other, counters, row):
            case.change(old)
    add()
