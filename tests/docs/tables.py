"""Reads tables and signatures out of a documentation page."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"```py\n(.*?)```", re.DOTALL)
Signature = tuple[str, str]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def table(text: str, heading: str) -> list[dict[str, str]]:
    """The rows of the table whose first column is called `heading`, by column."""
    lines = text.splitlines()
    return read_rows(lines, next(find_tables(lines, heading)))


def tables(text: str, heading: str) -> list[dict[str, str]]:
    """The rows of all tables whose first column is called `heading`."""
    lines = text.splitlines()
    return [row for start in find_tables(lines, heading) for row in read_rows(lines, start)]


def find_tables(lines: list[str], heading: str) -> Iterator[int]:
    return (n for n, line in enumerate(lines) if line.startswith(f"| {heading} |"))


def read_rows(lines: list[str], start: int) -> list[dict[str, str]]:
    columns = cells(lines[start])
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(columns, cells(line), strict=True)))
    return rows


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def word(cell: str) -> str:
    """What stands in the code marks of a cell."""
    assert re.fullmatch("`[^`]+`", cell), cell
    return cell[1:-1]


def shown(text: str) -> dict[str, Signature]:
    """The signatures in the `py` blocks of a page, by name."""
    return {
        name: signature
        for block in CODE.findall(text)
        for name, signature in signatures(ast.parse(block)).items()
    }


def real(*classes: type) -> dict[str, Signature]:
    """The signatures of the public methods that the classes themselves define."""
    found: dict[str, Signature] = {}
    for each in classes:
        found |= signatures(ast.parse(textwrap.dedent(inspect.getsource(each))))
    return {name: found[name] for name in found if not name.startswith("_")}


def signatures(tree: ast.Module) -> dict[str, Signature]:
    return {
        node.name: (parameters(node.args), ast.unparse(returns) if returns else "")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for returns in [unquote(node.returns)]
    }


class Unquoted(ast.NodeTransformer):
    """Shows an annotation without the quotes of one that is imported late."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = unquote(node.annotation)
        return node


def unquote(annotation: ast.expr | None) -> ast.expr | None:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return ast.parse(annotation.value, mode="eval").body
    return annotation


def parameters(arguments: ast.arguments) -> str:
    """As they are written, without self."""
    arguments.args = [each for each in arguments.args if each.arg != "self"]
    return ast.unparse(Unquoted().visit(arguments))
