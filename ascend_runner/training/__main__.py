"""`python -m ascend_runner.training > ascend_rank.py`: the functions for ranks, as one file to copy beside a script."""

from __future__ import annotations

import ast
import inspect
import sys

from ascend_runner.training import agreement, checkpoints, rank_calls, whole_files

HEAD = '"""Functions for ranks, as one file: beat, latest_checkpoint, on_checkpoint, saved. From ascend-runner."""'


def one_file() -> str:
    """Return the modules in one, without the imports between them."""
    parts = [HEAD, "from __future__ import annotations"]
    for module in (whole_files, checkpoints, agreement, rank_calls):
        source = inspect.getsource(module)
        lines = source.splitlines()
        for node in ast.parse(source).body:
            is_document = isinstance(node, ast.Expr)
            is_own = isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                ("ascend_runner", "__future__")
            )
            if is_document or is_own:
                lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - node.lineno + 1)
        parts.append("\n".join(lines).strip())
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(one_file())
