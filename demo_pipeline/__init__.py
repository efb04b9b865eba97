"""Recorded demonstrations of people using computers, made into training data.

In a notebook: `import demo_pipeline as dp; store = dp.load_store()`. The API is imported at its
first use, so that importing the package stays cheap.
"""

TYPE_CHECKING = False  # known to type checkers by its name; `typing` would be another import
if TYPE_CHECKING:
    from demo_pipeline.api import LoadedStep, LoadedTrajectory, NotebookStore, load_store

__all__ = ["LoadedStep", "LoadedTrajectory", "NotebookStore", "__version__", "load_store"]
__version__ = "0.1.0"  # the only place: pyproject.toml reads it from here


def __getattr__(name: str) -> object:
    """A name of the API; Python calls this for names that the package does not have yet."""
    if name in __all__:
        from demo_pipeline import api  # noqa: PLC0415 - at the first use

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, for completion in notebooks."""
    return __all__
