"""Immutable values: no part of the program can change a value that another part has read. Checks the imported
package.
"""

from __future__ import annotations

import ast
from pathlib import Path

import aliquot

PACKAGE = Path(aliquot.__path__[0])
STATE = "sim/state.py"
"""The simulator's state, in which everything changes."""
CHANGED = {
    *(
        "cli/framework/progress.py:GpuProgress",
        "cli/framework/progress.py:ProgressState",
        "cli/watch/screen_output.py:ScreenState",
    ),
    *("hardware/nvidia_smi/reader.py:SmiGpu", "hardware/nvml/reader.py:NvmlGpu"),
    "hardware/nvml/tables.py:SettledTable",
    *("hardware/state/journal_import.py:_Older", "hardware/state/journal_reader.py:_Line"),
    *("kubernetes/label_agent/controller/pending_pods.py:_WaitingPod", "slurm/client/rest_client.py:_Api"),
}
"""Structs that one function or one object fills and keeps to itself."""


def test_values_are_frozen() -> None:
    found = {
        f"{file}:{each.name}"
        for file, source in ((path.relative_to(PACKAGE).as_posix(), path.read_text()) for path in PACKAGE.rglob("*.py"))
        if file != STATE and "msgspec.Struct" in source
        for each in ast.walk(ast.parse(source))
        if isinstance(each, ast.ClassDef) and any(ast.unparse(base) == "msgspec.Struct" for base in each.bases)
        if not any(word.arg == "frozen" and ast.unparse(word.value) == "True" for word in each.keywords)
    }
    assert found == CHANGED


STRUCTURED = {f"aliquot.core.model.{name}" for name in ("actions", "desired", "plan", "structured_text")}
"""The modules of values that hold structured texts."""
PLAIN = {
    "cli/commands/mig_parted.py": "a checkpoint",
    "core/config/formats/checkpoint_vgpu.py": "a checkpoint",
    "core/engine/recorded_change.py": "the requests and the state of GPUs",
    "dashboard/cluster/desired_state.py": "the entries of a file",
    "dashboard/forms.py": "a request of a page",
    "kubernetes/gpu/gpu_operands.py": "the labels of a node",
    "kubernetes/gpu/node_document.py": "differences, but no plan",
}
"""Modules that encode values without structured texts, and which."""


def test_values_with_structured_texts_are_encoded_as_their_words() -> None:
    # msgspec refuses a structured text. Not every plan has one, so a wrong encoder may work in a test.
    found = set()
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        if imported & STRUCTURED and calls & {"msgspec.json.encode", "msgspec.to_builtins", "msgspec.msgpack.encode"}:
            found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {*PLAIN, "core/model/encoding.py"}
