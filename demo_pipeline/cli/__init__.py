"""The console script `demo-pipeline`: one module per command group, registered in app.py."""

import gc


def start() -> None:
    """Run the command line; importing makes no garbage, so none is looked for meanwhile."""
    gc.disable()
    from demo_pipeline.cli import app

    gc.freeze()  # else they are all searched as soon as it is enabled
    gc.enable()
    app.main()
