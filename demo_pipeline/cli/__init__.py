"""The console script `demo-pipeline`: one module per command group, registered in app.py."""
