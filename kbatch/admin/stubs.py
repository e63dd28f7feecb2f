"""Writes threads.pyi, the types of the plain methods, from the classes of coroutines.

`python -m kbatch.admin.stubs` writes it; a test compares the two.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path

LINE = 110
# A str is an iterable of str, too: the first of two overloads overlaps with the second.
IGNORED = "# type: ignore[overload-overlap]"
HERE = Path(__file__).parent
STUB = HERE / "threads.pyi"
# The modules with parts, in the order of the properties of an Admin.
MODULES = ("topics", "configs", "partitions", "groups", "security", "transactions", "cluster")
_HEAD = '''"""The parts of an Admin as threads use them. `python -m kbatch.admin.stubs` writes this file."""
'''


def stub() -> str:
    """Return threads.pyi."""
    imports: dict[str, None] = {}
    classes: list[str] = []
    for name in MODULES:
        source = (HERE / f"{name}.py").read_text()
        tree = ast.parse(source)
        for node in _all_imports(tree):
            imports |= dict.fromkeys(_import_lines(node))
        classes += [
            _class(node, source.splitlines())
            for node in tree.body
            if isinstance(node, ast.ClassDef) and node.name.startswith("Async")
        ]
        local = [
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef) and not node.name.startswith(("Async", "_"))
        ]
        imports |= dict.fromkeys(f"from kbatch.admin.{name} import {each}" for each in local)
    body = "\n".join(classes)
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    wanted = [line for line in imports if line.rsplit(" ", 1)[1] in used]
    wanted += ["from collections.abc import Iterator", "from typing import Any"]
    part = "class ThreadPart:\n    def __init__(self, part: Any) -> None: ...\n"
    return "\n".join([_HEAD, *_grouped(wanted), "", part, body])


def _grouped(lines: Iterable[str]) -> list[str]:
    """Return imports by module, those of kbatch last."""
    names: dict[str, set[str]] = {}
    for line in lines:
        _, module, _, name = line.split(" ")
        names.setdefault(module, set()).add(name)
    blocks: tuple[list[str], list[str]] = ([], [])
    for module in sorted(names):
        chosen = sorted(names[module])
        text = f"from {module} import {', '.join(chosen)}"
        if len(text) > LINE:
            listed = "".join(f"    {name},\n" for name in chosen)
            text = f"from {module} import (\n{listed})"
        blocks[module.startswith("kbatch")].append(text)
    return [*blocks[0], "", *blocks[1]]


def _all_imports(tree: ast.Module) -> list[ast.ImportFrom]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


def _import_lines(node: ast.ImportFrom) -> list[str]:
    return [f"from {node.module} import {alias.name}" for alias in node.names]


def _class(node: ast.ClassDef, source: Sequence[str]) -> str:
    methods = [
        each for each in node.body if isinstance(each, ast.AsyncFunctionDef) and not each.name.startswith("_")
    ]
    overloaded = {each.name for each in methods if each.decorator_list}
    kept = [each for each in methods if each.decorator_list or each.name not in overloaded]
    lines = [f"class {node.name.removeprefix('Async')}(ThreadPart):"]
    for each in kept:
        lines += _method(each, ignores=IGNORED in source[each.lineno - 1])
    return "\n".join(lines) + "\n"


def _method(node: ast.AsyncFunctionDef, *, ignores: bool) -> list[str]:
    """Return the plain method of a coroutine, without its body, an argument a line."""
    returns = ast.unparse(node.returns or ast.Constant(None)).replace("AsyncIterator", "Iterator")
    given = node.args
    optional = [None] * (len(given.args) - len(given.defaults)) + list(given.defaults)
    arguments = [_argument(arg, default) for arg, default in zip(given.args, optional, strict=True)]
    if given.kwonlyargs:
        arguments.append("*")
        arguments += map(_argument, given.kwonlyargs, given.kw_defaults)
    ignored = f"  {IGNORED}" if ignores else ""
    return [
        *(f"    @{ast.unparse(each)}" for each in node.decorator_list),
        f"    def {node.name}({ignored}",
        *(f"        {each}," for each in arguments),
        f"    ) -> {returns}: ...",
    ]


def _argument(arg: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(arg)
    return text if default is None else f"{text} = {ast.unparse(default)}"


if __name__ == "__main__":
    STUB.write_text(stub())
