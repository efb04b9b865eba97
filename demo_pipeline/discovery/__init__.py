"""Discovery: which uploads are complete, changed or gone, and which runs they need."""
