"""The documentation: every block runs, every link leads somewhere, generated pages are current.

The blocks of a page run in their order, in one empty folder: Python in one namespace, bash by
itself. A block whose first line is ``# file: name`` is written to that file. A block that
does not run says why, in a comment ``<!-- not run: reason -->`` on the line above it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from heomdask.cli.tables import schema

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUNNABLE = {"python", "bash"}
FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>.*?) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    line: int
    reason: str | None

    @property
    def file(self) -> str | None:
        found = re.match(r"# file: (\S+)\n", self.text)
        return found[1] if found else None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(m["kind"], m["text"], text.count("\n", 0, m.start("text")) + 1, m["reason"])
        for m in FENCE.finditer(text)
    ]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def has_blocks(page: Path) -> bool:
    return any(b.file or (b.kind in RUNNABLE and b.reason is None) for b in blocks(page))


@pytest.mark.parametrize("page", [p for p in PAGES if has_blocks(p)], ids=name_of)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"])
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.reason is not None:
            continue
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.kind == "python":
            source = "\n" * (block.line - 1) + block.text
            exec(compile(source, str(page), "exec"), namespace)
        elif block.kind == "bash":
            command = ["bash", "-euo", "pipefail", "-c", block.text]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
            assert done.returncode == 0, f"line {block.line}:\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_are_known_and_excuses_are_given(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("\n```") + text.startswith("```") == 2 * len(blocks(page)), "an odd fence"
    for block in blocks(page):
        assert block.kind in RUNNABLE | {"toml"}, f"line {block.line}: name the block's language"
        if block.reason is not None:
            assert len(block.reason.split()) >= 3, f"line {block.line}: say why it is not run"


def test_readme_has_exactly_two_commands() -> None:
    commands = [b.text.strip() for b in blocks(ROOT / "README.md")]
    assert len(commands) == 2
    assert all("\n" not in command for command in commands)
    assert commands[0].endswith("heomdask run fmo")
    assert "pytest" in commands[1]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if not re.match(r"https?:", target):
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"


def script(path: Path) -> ModuleType:
    """A script of the documentation, imported by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cluster", "outcomes", "toml"])
def test_reference_is_generated_from_the_program(name: str) -> None:
    folder = ROOT / "docs" / "reference"
    page = (folder / f"{name}.md").read_text(encoding="utf-8")
    assert page == getattr(script(folder / "generate.py"), name)()


def test_every_key_of_the_toml_file_has_a_meaning() -> None:
    page = (ROOT / "docs" / "reference" / "toml.md").read_text(encoding="utf-8")
    for table in schema()["$defs"].values():
        for key, value in table["properties"].items():
            assert len(value.get("description", "").split()) >= 2, key
            assert f"| `{key}` | " in page


def test_figures_of_the_performance_page_are_those_of_its_report() -> None:
    folder = ROOT / "docs"
    page = (folder / "performance.md").read_text(encoding="utf-8")
    own = script(folder / "performance.py")
    report = own.msgspec.json.decode((folder / "performance.json").read_bytes(), type=own.Report)
    assert page == own.rendered(page, report)


def test_figures_of_the_efficiency_page_are_those_of_its_benchmarks() -> None:
    folder = ROOT / "docs"
    page = (folder / "efficiency.md").read_text(encoding="utf-8")
    own = script(folder / "efficiency.py")
    assert page == own.rendered(page, own.json.loads((folder / "efficiency.json").read_text()))


def test_picture_is_drawn_by_its_script() -> None:
    folder = ROOT / "docs" / "explanation"
    picture = (folder / "hourglass.svg").read_text(encoding="utf-8")
    assert picture == script(folder / "hourglass.py").draw()


def test_change_fragments_are_named_by_the_rule() -> None:
    kinds = "feature|fix|breaking|doc|internal"
    names = [p.name for p in (ROOT / "docs" / "changes").iterdir() if p.name != "README.md"]
    assert names
    for name in names:
        assert re.fullmatch(rf"\d+\.({kinds})\.md", name), name
    numbers = [name.split(".")[0] for name in names]
    assert len(set(numbers)) == len(numbers)
