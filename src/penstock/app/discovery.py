"""Finds the app of a command: by argument, environment or pyproject.toml."""

import importlib
import os
import sys
import sysconfig
import tomllib
import traceback
from pathlib import Path
from types import ModuleType

from penstock.app.app import Penstock
from penstock.errors import InvalidInput, InvalidState

OUR_FILES = f"{Path(__file__).parents[1]}{os.sep}"
LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
SCRIPT_HINT = "; put code that must run only as a script under if __name__ == '__main__':"


def find_app(reference: str | None, url: str | None = None) -> Penstock | None:
    """Loads the app, or returns None if none is configured. A `url` replaces the app's own."""
    reference = (
        reference or os.environ.get("PENSTOCK_APP") or from_pyproject(Path("pyproject.toml"))
    )
    if reference is None:
        return None
    app = load(reference)
    if url is not None:
        app.use(url)
    return app


def from_pyproject(path: Path) -> str | None:
    if not path.exists():
        return None
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: {error}") from None
    app = found.get("tool", {}).get("penstock", {}).get("app")
    if app is not None and not isinstance(app, str):
        raise InvalidInput(f"{path}: [tool.penstock] app must be a string like 'module:app'")
    return app


def load(reference: str) -> Penstock:
    """Imports `module:app`, from the working directory first."""
    module, attribute = load_module(reference, "app")
    app = getattr(module, attribute, None)
    if not isinstance(app, Penstock):
        others = [key for key, value in vars(module).items() if isinstance(value, Penstock)]
        found = ", ".join(f"{module.__name__}:{each}" for each in others)
        hint = f"; did you mean {found}?" if others else ""
        raise InvalidInput(
            f"module {module.__name__!r} has no Penstock app named {attribute!r}{hint}"
        )
    return app


def load_object(reference: str) -> object:
    """Imports `module:name`, from the working directory first."""
    module, attribute = load_module(reference, "name")
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise InvalidInput(f"module {module.__name__!r} has no {attribute!r}") from None


def load_module(reference: str, word: str) -> tuple[ModuleType, str]:
    """Imports the module of `module:word`, and returns it and the word."""
    name, colon, attribute = reference.partition(":")
    if not name or not colon or not attribute:
        raise InvalidInput(f"{word} {reference!r} is not of the form module:{word}")
    if name.endswith(".py") or "/" in name:
        raise InvalidInput(
            f"{word} {reference!r} is a file path; write the import path, such as pkg.mod:{word}"
        )
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return import_module(name), attribute


def import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise InvalidInput(
                f"no module named {error.name!r}, neither in {os.getcwd()!r} nor installed"
            ) from None
        raise make_import_error(name, error) from error
    except (Exception, SystemExit) as error:
        raise make_import_error(name, error) from error


def make_import_error(name: str, error: BaseException) -> InvalidInput:
    """Names the last line of the traceback that is the user's own, if there is one."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(OUR_FILES) and "importlib" not in frame.filename
    ]
    frames = [frame for frame in frames if not frame.filename.startswith(LIBRARIES)] or frames
    where = f", at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    if isinstance(error, SyntaxError):
        where = f", at {error.filename}:{error.lineno}"
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    in_loop = isinstance(error, RuntimeError) and "event loop" in str(error)
    hint = SCRIPT_HINT if isinstance(error, InvalidState) or in_loop else ""
    return InvalidInput(f"module {name!r} cannot be imported: {text}{where}{hint}")
