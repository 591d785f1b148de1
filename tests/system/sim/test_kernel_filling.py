"""Full boards, with every pair of sizes and on every GPU instance profile: the results match the raw tables."""

from __future__ import annotations

import pytest

from system.sim.kernel_setup import PCI, Kernel
from system.sim.vgpu_oracle import Row, VgpuOracle

BOARDS = {
    "a2": "a2",
    "a40": "a40",
    "l40s": "l40s",
    "l4": "l4",
    "a100-sxm4-80gb": "a100-sxm4-80gb",
    "h100-nvl": "h100-nvl",
    "rtx-pro-6000-blackwell-server-edition": "rtx-pro-6000",
}
WITH_MIG = {
    "a30": "a30",
    "a100-sxm4-40gb": "a100-sxm4-40gb",
    "h100-nvl": "h100-nvl",
    "rtx-pro-6000-blackwell-server-edition": "rtx-pro-6000",
}


class Filling:
    """A board and its oracle side by side."""

    def __init__(self, product: str, template: str, mixed: bool = False, mig: bool = False) -> None:
        self.node = Kernel(f"{template}:vfio")
        state = self.node.gpu.state
        state.mig = state.pending = mig
        self.oracle = VgpuOracle(product)
        self.oracle.mig = mig
        assert self.node.manage() == 0
        state.mixed = self.oracle.mixed = mixed
        self.functions = self.node.vfs()

    def make(self, row: Row) -> bool:
        """Create a vGPU on the next free function. Kernel and oracle must agree on the result and the placement."""
        free = next((f for f in self.functions if f not in self.oracle.there), None)
        if free is None:
            return False
        assert (row["id"] in self.node.listed(free)) == self.oracle.offers(row)
        expected = self.oracle.create(free, row["id"]) == "ok"
        assert (self.node.make(free, row["id"]) == 0) == expected
        if expected:
            there = self.oracle.there[free]
            made = next(v for v in self.node.gpu.state.vgpus if v.function == free)
            assert (made.gi, made.placement) == tuple(-1 if x is None else x for x in (there.gi, there.place))
        return expected

    def drop(self, function: str) -> None:
        assert self.node.drop(function) == 0
        del self.oracle.there[function]

    def clear(self) -> None:
        for function in list(self.oracle.there):
            self.drop(function)

    def one_of_each_size(self) -> list[Row]:
        rows: dict[int, Row] = {}
        for row in self.oracle.rows:
            if row["kind"] == "time-sliced":
                rows.setdefault(row["fb_mib"], row)
        return list(rows.values())


BIG = pytest.param("rtx-pro-6000-blackwell-server-edition", marks=pytest.mark.slow)


@pytest.mark.parametrize("product", ["a2", "l4", "l40s", "a100-sxm4-80gb", BIG])
def test_some_of_one_size_and_then_another(product: str) -> None:
    board = Filling(product, BOARDS[product], mixed=True)
    sizes = board.one_of_each_size()
    for first in sizes:
        for count in {1, 3, first["max_mixed"] // 4 + 1}:
            for second in sizes:
                board.clear()
                for _ in range(count):
                    board.make(first)
                while board.make(second):
                    pass


@pytest.mark.parametrize("product", sorted(BOARDS))
def test_as_many_of_one_type_as_the_table_says(product: str) -> None:
    for mixed, column in ((False, "max"), (True, "max_mixed")):
        board = Filling(product, BOARDS[product], mixed)
        for row in board.one_of_each_size():
            board.clear()
            made = 0
            while board.make(row):
                made += 1
            assert made == min(row[column], len(board.functions), 32), row["name"]


@pytest.mark.parametrize("product", sorted(WITH_MIG))
def test_every_mig_backed_type_on_as_many_instances_as_fit(product: str) -> None:
    board = Filling(product, WITH_MIG[product], mig=True)
    node = board.node
    for profile in sorted({r["mig"]["gi_profile_id"] for r in board.oracle.rows if r["kind"] == "mig-backed"}):
        link = node.open(7)
        while (answer := node.ask(f"DeviceCreateGpuInstance 0 -1 -1 {profile}", link))[0] == 0:
            board.oracle.instances[answer[1]] = profile
        assert board.oracle.instances, profile
        for row in [r for r in board.oracle.rows if (r.get("mig") or {}).get("gi_profile_id") == profile]:
            made = 0
            while board.make(row):
                made += 1
            whole = len(board.oracle.instances) * row["mig"]["max_per_gi"]
            assert made == min(whole, len(board.functions), 48), row["name"]
            for function in [*board.oracle.there][::2]:
                board.drop(function)
            while board.make(row):
                pass
            board.clear()
        for gi in list(board.oracle.instances):
            assert node.ask(f"GpuInstanceDestroy 0 {gi} -1", link) == [0]
        board.oracle.instances.clear()
        node.node.sessions.clear()


@pytest.mark.parametrize("product", ["l40s", "rtx-pro-6000-blackwell-server-edition"])
def test_a_full_gpu_shows_the_header_only(product: str) -> None:
    board = Filling(product, BOARDS[product])
    whole = max(board.one_of_each_size(), key=lambda r: r["fb_mib"])
    assert board.make(whole)
    assert {board.node.files.read(f"{PCI}/{f}/nvidia/creatable_vgpu_types") for f in board.functions} == {
        "ID    : vGPU Name"
    }


@pytest.mark.parametrize("mixed", [False, True])
def test_after_the_last_is_gone_the_first_list_is_back(mixed: bool) -> None:
    board = Filling("l40s", "l40s", mixed)
    before = {f: board.node.listed(f) for f in board.functions}
    for row in board.one_of_each_size():
        board.make(row)
    board.clear()
    assert {f: board.node.listed(f) for f in board.functions} == before


def test_mdevs_of_a_t4_count_down_on_the_physical_function() -> None:
    node = Kernel("tesla-t4:mdev")
    types = f"{node.pf}/mdev_supported_types"
    before = {n: node.files.read(f"{types}/{n}/available_instances") for n in node.files.names(types)}
    assert before["nvidia-230"] == "16"
    for made in range(3):
        assert node.files.read(f"{types}/nvidia-232/available_instances") == str(4 - made)
        assert node.write(f"{types}/nvidia-232/create", f"00000000-0000-4000-8000-00000000000{made}") == 0
    assert node.files.read(f"{types}/nvidia-230/available_instances") == "0", "another size"
    assert node.files.read(f"{types}/nvidia-319/available_instances") == "1", "4C beside 4Q"
    assert node.files.names(f"{types}/nvidia-232/devices") == tuple(
        f"00000000-0000-4000-8000-00000000000{n}" for n in range(3)
    )
    assert node.files.names("/sys/class/mdev_bus") == (node.gpu.state.pci,)
