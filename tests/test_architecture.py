"""The shape of the package: layers, sizes, start-up imports, and the words it is written in."""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = sorted((ROOT / "heomdask").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
NATIVE = [
    path
    for folder in ("heomdask/_native", "heomdask/_cuda", "tests/gpuless")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".hpp", ".cpp", ".h", ".cu", ".c"}
]

FILE_LINES = 500
FUNCTION_LINES = 60
CLASS_LINES = 200


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --------------------------------------------------------------------------- layers


def test_imports_follow_the_layers() -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [lint_imports, "--no-cache", "--no-logo"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"Contracts: [6-9] kept, 0 broken", result.stdout), result.stdout


@pytest.mark.parametrize("statement", ["import heomdask", "import heomdask, heomdask.units"])
def test_import_is_light(statement: str) -> None:
    """Nothing of the cluster stack, of plotting or of a GPU comes with a bare import."""
    heavy = "{'dask', 'distributed', 'xarray', 'zarr', 'matplotlib', 'cupy', 'qutip', 'pint'}"
    code = f"{statement}; import sys; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert result.stdout.strip() == "[]"


# --------------------------------------------------------------------------- sizes


@pytest.mark.parametrize("path", [*PACKAGE, *TESTS, *NATIVE], ids=name_of)
def test_file_is_not_too_long(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= FILE_LINES


@pytest.mark.parametrize("path", [*PACKAGE, *TESTS], ids=name_of)
def test_functions_and_classes_are_not_too_long(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    coded = code_lines(source)
    too_long = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            limit = FUNCTION_LINES
        elif isinstance(node, ast.ClassDef):
            limit = CLASS_LINES
        else:
            continue
        size = len(coded & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
        if size > limit:
            too_long.append(f"{node.name}: {size} code lines, at most {limit}")
    assert not too_long


def code_lines(source: str) -> set[int]:
    """Numbers of the lines that hold code: no comments, no docstrings, no blank lines."""
    passive = (
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENCODING, tokenize.ENDMARKER,
    )  # fmt: skip
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in passive:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and is_docstring(body[0]):
            lines -= set(range(body[0].lineno, (body[0].end_lineno or 0) + 1))
    return lines


def is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


@pytest.mark.parametrize("path", PACKAGE, ids=name_of)
def test_no_dumping_ground(path: Path) -> None:
    assert path.stem not in {"utils", "util", "misc", "common", "helpers"}


@pytest.mark.parametrize("path", PACKAGE, ids=name_of)
def test_no_argument_travels_unnamed(path: Path) -> None:
    """No **kwargs: every option is a typed keyword that a reader can find.

    The one exception calls with the axes of a sweep, whose names are the user's own.
    """
    if name_of(path) == "heomdask/cli/physics.py":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.args.kwarg is None, f"{node.name} takes **{node.args.kwarg.arg}"


# --------------------------------------------------------------------------- words


@pytest.mark.parametrize("path", [p for p in PACKAGE if p.stem != "__init__"], ids=name_of)
def test_docstring_says_takes_gives_next(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    if path.stem == "__main__":
        return
    first = [docstring.find(f"\n{word}: ") for word in ("Takes", "Gives", "Next file")]
    assert -1 not in first, "the docstring opens with lines Takes, Gives and Next file"
    assert first == sorted(first)


@pytest.mark.parametrize("path", [*PACKAGE, *TESTS], ids=name_of)
def test_every_exception_to_a_rule_says_why(path: Path) -> None:
    unexplained = [
        f"line {number}: {comment}"
        for number, comment in comments(path.read_text(encoding="utf-8"))
        if re.search(r"type:\s*ignore|noqa|pragma:", comment) and not has_reason(comment)
    ]
    assert not unexplained


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def has_reason(comment: str) -> bool:
    """``# type: ignore[code]  # reason`` or ``# noqa: CODE - reason``: words after the code."""
    rest = re.sub(
        r"type:\s*ignore(\[[\w, -]+\])?|noqa(:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*)?", "", comment
    )
    return len(re.findall(r"[A-Za-z]{2,}", rest.replace("pragma: no cover", ""))) >= 2


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_every_skip_says_why(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr in {"skip", "skipif", "xfail"}:
            call = enclosing_call(path, node)
            assert call is not None, f"line {node.lineno}: a skip without a reason"
            named = {k.arg for k in call.keywords}
            assert named & {"reason"} or (node.attr == "skip" and call.args), (
                f"line {node.lineno}: a skip without a reason"
            )


def enclosing_call(path: Path, attribute: ast.Attribute) -> ast.Call | None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        same_line = isinstance(node, ast.Call) and node.lineno == attribute.lineno
        if same_line and ast.dump(node.func) == ast.dump(attribute):
            return node
    return None


BELOW_THE_WAIST = [
    path
    for folder in ("backends", "_native", "_cuda")
    for path in sorted((ROOT / "heomdask" / folder).rglob("*.*"))
    if path.suffix in {".py", ".pyi", ".hpp", ".cpp", ".h", ".cu"}
]


@pytest.mark.parametrize("path", BELOW_THE_WAIST, ids=name_of)
def test_below_the_waist_nobody_has_heard_of_a_bath(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = re.search(r"\b(baths?|exponents?|tiers?|drude|matsubara|pade)\b", text, re.IGNORECASE)
    assert found is None, found


FORBIDDEN = re.compile(
    r"\bTODO\b|\bFIXME\b|\bXXX\b|\bHACK\b|/wor[k]/|/hom[e]/|/roo[t]/|\bissue ?#?\d+|/tmp/"
)


def project_files(root: Path) -> list[str]:
    """All files that git does not ignore; without git, or a repository, .gitignore is read here."""
    try:
        command = ["git", "ls-files", "-co", "--exclude-standard"]
        listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        return listed.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        lines = (root / ".gitignore").read_text(encoding="utf-8").split()
    ignored = [line.rstrip("/") for line in lines if not line.startswith("!")] + [".git"]
    names = []
    for folder, below, files in os.walk(root):
        below[:] = [d for d in below if not any(fnmatch(d, pattern) for pattern in ignored)]
        here = Path(folder).relative_to(root)
        names += [str(here / f) for f in files if not any(fnmatch(f, p) for p in ignored)]
    return names


def test_the_projects_files_are_found_without_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".gitignore", "a.py", "docs/b.md", "build/c.py", "docs/build/d.py", "e.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("build/\n*.py[cod]\n")
    for programs in (os.environ["PATH"], ""):  # no repository; no git
        monkeypatch.setenv("PATH", programs)
        assert sorted(project_files(tmp_path)) == [".gitignore", "a.py", "docs/b.md"]


def test_text_speaks_of_the_project_only() -> None:
    """No unfinished notes, no paths of anybody's machine, no numbers of anybody's tickets."""
    found = []
    suffixes = {
        ".py", ".md", ".toml", ".c", ".cpp", ".cu", ".h", ".hpp", ".txt", ".ipynb", ".yaml", ".svg",
        ".pyi",
    }  # fmt: skip
    for name in project_files(ROOT):
        path = ROOT / name
        if path.suffix not in suffixes or not path.is_file() or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if FORBIDDEN.search(line):
                found.append(f"{name}:{number}: {line.strip()[:80]}")
    assert not found


def test_test_files_have_names_of_their_own() -> None:
    """Folders of tests are no packages, so two files of one name would be one module."""
    names = [path.name for path in TESTS if path.name.startswith("test_")]
    assert len(set(names)) == len(names)
