"""The OSWorld-Desktopd format: models, reader, validators."""
