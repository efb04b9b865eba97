"""The OSWorld-Desktopd dataset."""
