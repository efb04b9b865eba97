"""The format OSWorld-Desktopd: models, reader and validator."""
