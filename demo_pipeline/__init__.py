"""Turns recorded demonstrations of people using computers into training data.

In a notebook: `import demo_pipeline as dp; store = dp.load_store()`. The module `api` is imported
at the first use of one of its names, so that importing the package is fast.
"""

# Type checkers take any variable of this name as true. It saves the import of `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from demo_pipeline.api import LoadedStep, LoadedTrajectory, NotebookStore, load_store

__all__ = ["LoadedStep", "LoadedTrajectory", "NotebookStore", "__version__", "load_store"]
__version__ = "0.1.0"  # the only place: pyproject.toml reads it from here


def __getattr__(name: str) -> object:
    """Imports a name of the API; Python calls this for names that are not imported yet."""
    if name in __all__:
        from demo_pipeline import api  # noqa: PLC0415 - at the first use

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Returns the public names, so that notebooks can offer them for tab completion."""
    return __all__
