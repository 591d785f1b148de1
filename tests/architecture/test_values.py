"""Immutable values: no part of the program can change a value that another part has read. Checks the imported
package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import aliquot
from support.syntax import nodes

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
        for path in PACKAGE.rglob("*.py")
        if (file := path.relative_to(PACKAGE).as_posix()) != STATE and "msgspec.Struct" in path.read_text()
        for each in nodes(path)
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
        imported = {node.module for node in nodes(path) if isinstance(node, ast.ImportFrom)}
        if not imported & STRUCTURED:
            continue
        calls = {ast.unparse(node.func) for node in nodes(path) if isinstance(node, ast.Call)}
        if calls & {"msgspec.json.encode", "msgspec.to_builtins", "msgspec.msgpack.encode"}:
            found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {*PLAIN, "core/model/encoding.py"}


SENTENCES = {
    *("brief", "detail", "details", "message", "next_step", "note", "notes", "reason", "remark", "sentence"),
    *("sentences", "step", "summary", "warning", "warnings", "why"),
}
"""What the code calls texts for people."""
SEARCHES = {
    *("count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "replace", "rpartition"),
    *("rsplit", "split", "splitlines", "startswith"),
}
SEARCHED = {
    # Texts of other programs
    "cli/framework/argparse_parser.py": "argparse's errors",
    "kubernetes/client/errors.py": "the API server's messages",
    "kubernetes/client/exec_errors.py": "kubelet's messages",
    "libvirt/errors.py": "libvirt's errors",
    "slurm/client/pending_reasons.py": "Slurm's reasons of jobs",
    # Texts that another process stored, or may have stored
    "core/model/plan.py": "the differences in the document of a node",
    "slurm/controller/drains.py": "the reasons of Slurm's nodes",
    "slurm/controller/limits.py": "the reasons of Slurm's nodes",
    "slurm/controller/models.py": "the reasons of Slurm's nodes",
    "slurm/controller/waiting_step.py": "the reasons of Slurm's nodes",
    "slurm/node/request.py": "the reasons of Slurm's nodes",
    # No sentences
    "cli/framework/error_output.py": "the lines of a detail",
    "cli/framework/next_command.py": "whether a next step is a command to paste",
    "core/model/nvml_return_codes.py": "the placeholder of a template",
    "sim/driver/latency.py": "the names of driver steps",
}
"""Modules that search such a text, and which."""


def searched_texts(every: Iterable[ast.AST]) -> list[str]:
    """Return the expressions that look for something in a text for people."""
    found = []
    for node in every:
        text: ast.AST | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHES:
            text = node.func.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.") and node.args:
            text = node.args[-1]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            text = node.comparators[0] if isinstance(node.left, ast.Constant | ast.JoinedStr) else None
        if (getattr(text, "attr", None) or getattr(text, "id", None)) in SENTENCES:
            found.append(ast.unparse(node))
    return found


def test_no_module_reads_the_sentences_that_we_write() -> None:
    # A value beside the sentence, or a part of it, says the same to a program.
    found = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if searched_texts(nodes(path))}
    assert found == SEARCHED.keys()


def test_a_search_in_a_sentence_is_found() -> None:
    for code in (
        "blocker.message.replace(pci, '')",
        "step.partition(' ')",
        "'stays attached' in outcome.details",
        "re.search(r'at (.*)', action.reason)",
    ):
        assert searched_texts(ast.walk(ast.parse(code))), code
    others = "path.partition('/'); blocker in blockers; a.message == b.message"
    assert not searched_texts(ast.walk(ast.parse(others)))
