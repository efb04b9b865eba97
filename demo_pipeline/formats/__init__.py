"""Models, readers, writers and validators, one package per format."""
