"""Which uploads are complete, changed or gone, and which runs are to be requested for them."""
