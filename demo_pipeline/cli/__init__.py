"""The console script `demo-pipeline`: one module per command group, registered in app.py."""

import gc


def start() -> None:
    """Imports and runs the command line, without garbage collection during the imports."""
    gc.disable()
    from demo_pipeline.cli import app

    gc.freeze()  # the garbage collector ignores the imported objects from now on
    gc.enable()
    app.main()
