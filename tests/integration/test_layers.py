"""The shape of the tree: levels, circles of imports, ARCHITECTURE.md, lengths of functions and lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT, layers
from tests.layers import LAYERS, PAGE

# What the simulator takes from other tests, which have no layers.
TOOLS_OF_THE_SIMULATOR = {"tests", "tests.fuzz.campaign", "tests.support.compiling", "tests.support.effort"}
LONGEST_LINE = 110
LONGEST_FUNCTION = 70  # lines, without its docstring
PYTHON = [
    path for folder in ("kbatch", "tests", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py")
]
CYTHON = sorted((ROOT / "kbatch").rglob("*.pyx"))
C = sorted((ROOT / "src_c").iterdir())


def test_modules_import_lower_levels_and_their_own_folder_only() -> None:
    for module in layers.modules():
        for imported in sorted(layers.imports_of(module) - TOOLS_OF_THE_SIMULATOR):
            mine, other = layers.layer_of(module), layers.layer_of(imported)
            is_allowed = other.level < mine.level or other is mine
            assert is_allowed, f"{module} imports {imported}"


def test_no_modules_import_each_other() -> None:
    assert not layers.circles()


def test_a_circle_is_found_through_types_and_functions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sources = {
        "a.py": "if TYPE_CHECKING:\n    from kbatch.b import B\n",
        "b.pyx": "from kbatch.c cimport (\n    C,\n)\n",
        "c.pxd": "from kbatch cimport d\n",
        "d.py": "def f():\n    import kbatch.a\n",
        "e.py": "import kbatch.a\n",
    }
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    files = {f"kbatch.{name.partition('.')[0]}": [tmp_path / name] for name in sources}
    monkeypatch.setattr(layers, "modules", lambda: files)
    monkeypatch.setattr(layers, "imports_of", layers.imports_of.__wrapped__)
    assert layers.circles() == {frozenset(f"kbatch.{name}" for name in "abcd")}


def test_architecture_page_has_the_table_of_layers() -> None:
    text = PAGE.read_text()
    assert text == layers.with_table(text), "run `python -m tests.layers`"


def test_layers_and_their_parts_are_there() -> None:
    for layer in LAYERS:
        folder = ROOT / layers.path_of(layer)
        assert folder.exists(), layer.where
        files = [path.name for path in folder.glob("*")]
        names = set(files) if layer.level == 0 else {name.partition(".")[0] for name in files}
        assert {name for part in layer.parts for name in part.split()} <= names, layer.where


def test_every_native_module_has_its_source() -> None:
    """A module built before its source moved would be imported, and hide a wrong import."""
    native = [path for path in (ROOT / "kbatch").rglob("*.*") if path.suffix in (".so", ".pyd")]
    sources = {path.with_suffix("") for path in CYTHON}
    shared = ROOT / "kbatch" / "_native" / "cython_shared"  # Cython's own: what its modules have in common
    assert {path.with_name(path.name.partition(".")[0]) for path in native} - {shared} == sources


# Lengths


def python_functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield the name of each function and its lines, the docstring left out."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            yield node.name, lines


HEAD = re.compile(r"( *)(?:def|cdef|cpdef|async def) (?!class )[^=#]*?(\w+)\(")


def cython_functions(text: str) -> Iterator[tuple[str, int]]:
    """Return the functions of a .pyx file. A function ends with the last line deeper than its head."""
    lines = text.splitlines()
    for first, line in enumerate(lines):
        head = HEAD.match(line)
        if head is None:
            continue
        deeper = re.compile(rf" {{{len(head[1]) + 1}}}|$|{head[1]}\)")
        end = first + 1
        while end < len(lines) and deeper.match(lines[end]):
            end += 1
        body = "\n".join(lines[first:end]).rstrip()
        yield head[2], len(re.sub(r'\n *""".*?"""', "", body, count=1, flags=re.DOTALL).splitlines())


def c_functions(text: str) -> Iterator[tuple[str, int]]:
    """Return the functions of C code, which has no docstrings: they begin and end at the first column."""
    for found in re.finditer(r"^\w[^\n;]*?(\w+)\((?:[^;{}]*)\)\s*\{\n.*?^\}", text, re.MULTILINE | re.DOTALL):
        yield found[1], found[0].count("\n") + 1


FUNCTIONS = {".py": python_functions, ".pyx": cython_functions, ".h": c_functions, ".c": c_functions}


@pytest.mark.slow
def test_functions_fit_a_screen() -> None:
    for path in [*PYTHON, *CYTHON, *C]:
        functions = FUNCTIONS[path.suffix](path.read_text())
        assert [function for function in functions if function[1] > LONGEST_FUNCTION] == [], path


def test_the_length_of_a_function_is_what_an_editor_shows() -> None:
    body = "".join(f"    x = {number}\n" for number in range(67))
    python = f'def f(\n    a,\n):\n    """One\n\n    Two.\n    """\n{body}\n\ny = 1\n'
    cython = f'cdef class A:\n    cdef int f(\n        self,\n    ) except -1:\n        """One."""\n{body}\n'
    cython = re.sub("(?m)^    x", "        x", cython) + "\n    def g(self): pass\n"
    c = f"static inline int f(int a,\n                    int b) {{\n{body}}}\n\nint g(void);\n"
    assert list(python_functions(python)) == [("f", 70)]
    assert list(cython_functions(cython)) == [("f", 70), ("g", 1)]
    assert list(c_functions(c)) == [("f", 70)]


def test_lines_fit_a_screen() -> None:
    for path in [*CYTHON, *(ROOT / "kbatch").rglob("*.pxd"), *C]:  # the linter looks at .py files
        lines = enumerate(path.read_text().splitlines(), 1)
        assert [number for number, line in lines if len(line) > LONGEST_LINE] == [], path
