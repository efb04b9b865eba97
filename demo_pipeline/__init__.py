"""Turns recorded demonstrations of people using computers into training data.

In a notebook: `import demo_pipeline as dp; store = dp.load_store()`.
"""

# Type checkers treat any variable named `TYPE_CHECKING` as true, so `typing` is not imported.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from demo_pipeline.api import LoadedStep, LoadedTrajectory, NotebookStore, load_store

__all__ = ["LoadedStep", "LoadedTrajectory", "NotebookStore", "__version__", "load_store"]
__version__ = "0.1.0"  # pyproject.toml reads the version from here


def __getattr__(name: str) -> object:
    """Returns a public name of `api`."""
    if name in __all__:
        from demo_pipeline import api  # noqa: PLC0415 - keeps the package fast to import

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Returns the public names, so that notebooks can offer them for tab completion."""
    return __all__
