"""The rules of the house that no linter knows."""

import ast
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parents[2]
HOST = re.compile(r"(?:https?|git|ssh)://(?:[^\s/@]*@)?([\w.-]+)(\S*)")
# A docstring is a sentence or an imperative, never a fragment that begins like this.
FRAGMENT = re.compile(r"(As|By|How|Of|That|Those|What|Where|Which|Who|Whoever|Whom|Whose)\b")
PARAPHRASE = re.compile(r"\b(told|tells?|somebody|someone|nobody|whoever|whom|said so)\b", re.I)
# Functions are named by verbs. These are public, or part of the Store protocol.
PARTICIPLE = re.compile(
    r"(chosen|drawn|found|given|held|kept|known|made|seen|told|[a-z]+[^e]ed)(_|$)"
)
NAMED = {"armed", "awaited_results", "expired_leases", "held", "listed", "named", "seen"}
VAGUE = re.compile(r"(MOST|LOOK|LOOKS|LONGEST|PATIENCE|SOON|ENOUGH|TOGETHER|WHILE|HERE|OURS)")
PRIVATE = re.compile(r"\.(corp|home|internal|intranet|lan|local)$")


@cache
def modules() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.glob("src/**/*.py")}


@cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(text) for name, text in modules().items()}


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, tree in trees().items() if not ast.get_docstring(tree)] == []


def test_no_module_is_longer_than_350_lines() -> None:
    assert [name for name, text in modules().items() if text.count("\n") > 350] == []


def test_no_function_is_longer_than_40_lines() -> None:
    assert [
        f"{name}:{node.lineno} {node.name}"
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (node.end_lineno or 0) - node.lineno >= 40
    ] == []


def test_class_names_are_unique() -> None:
    names = Counter(
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_models_are_frozen() -> None:
    """Rows that add up metrics and anomalies are filled while they are read."""
    changing = {
        node.name
        for name, tree in trees().items()
        if "/model/" in name or "/rules/" in name or "/wire/" in name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        if "Struct" in map(ast.unparse, node.bases)
        if not any(keyword.arg == "frozen" for keyword in node.keywords)
    }
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    (named,) = re.findall(r"that add up metrics and anomalies \(([^)]*)\)", guide)
    assert changing == set(re.findall(r"`(\w+)`", named))


def test_agents_live_in_their_package() -> None:
    """Agents that serve the clients of one HTTP server live beside them."""
    assert [
        f"{name} {node.name}"
        for name, tree in trees().items()
        if "/agents/" not in name and "/http/" not in name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and "Protocol" not in map(ast.unparse, node.bases)
        for each in node.body
        if isinstance(each, ast.AsyncFunctionDef) and each.name == "tick"
    ] == []


def read_docstrings() -> Iterator[tuple[str, str]]:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, kinds) and (docstring := ast.get_docstring(node)):
                yield f"{name}:{getattr(node, 'lineno', 1)}", docstring


def test_no_docstring_is_a_fragment() -> None:
    assert [f"{place} {text}" for place, text in read_docstrings() if FRAGMENT.match(text)] == []


def test_docstrings_and_comments_use_plain_words() -> None:
    written = [*read_docstrings()]
    for name, text in modules().items():
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("#"):
                written.append((f"{name}:{number}", line))
    # An address in an example is no prose.
    prose = ((place, re.sub(r"\S+@\S+", "", text)) for place, text in written)
    assert [place for place, text in prose if PARAPHRASE.search(text)] == []


def test_functions_are_not_named_by_participles() -> None:
    assert [
        f"{name}:{node.lineno} {node.name}"
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if PARTICIPLE.match(node.name) and node.name not in NAMED
        if not any("property" in ast.unparse(each) for each in node.decorator_list)
    ] == []


def test_constants_say_what_they_limit() -> None:
    assert [
        f"{name}:{node.lineno} {target.id}"
        for name, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and VAGUE.fullmatch(target.id)
    ] == []


def test_no_module_silences_the_type_checker() -> None:
    assert [name for name, text in modules().items() if "type: ignore" in text] == []


def test_the_guide_lists_the_import_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (each["layers"] for each in contracts["contracts"] if "layers" in each)
    real = [re.sub(r"[()]", "", layer) for layer in layers]
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    (listed,) = re.findall(r"lists the nine layers: (.*?)\. Modules", guide)
    assert re.findall(r"`([^`]+)`", listed) == real


def test_the_package_has_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert getattr(penstock, "__version__", version("penstock")) == project["version"]


def test_the_navigation_lists_every_page_once() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
    # Decisions are too many for the menu: a page of their own lists them.
    decisions = (ROOT / "docs" / "decisions" / "index.md").read_text()
    listed += [f"decisions/{name}" for name in re.findall(r"\(([\w-]+\.md)\)", decisions)]
    pages = (ROOT / "docs").glob("**/*.md")
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in pages)


def test_the_lock_names_only_public_hosts() -> None:
    hosts = {host for host, _ in HOST.findall((ROOT / "uv.lock").read_text())}
    assert hosts == {"pypi.org", "files.pythonhosted.org"}


def test_no_file_names_a_private_host_or_package_index() -> None:
    assert [
        f"{name}: {host}"
        for name, text in read_repository()
        for host, rest in HOST.findall(text)
        if PRIVATE.search(host) or ("/simple" in rest and host != "pypi.org")
    ] == []


def read_repository() -> Iterator[tuple[str, str]]:
    if not (shutil.which("git") and (ROOT / ".git").exists()):
        pytest.skip("not a git repository")
    # A build machine may own the copy as another user.
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
    command = [*git, "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            yield name, (ROOT / name).read_text(errors="replace")
