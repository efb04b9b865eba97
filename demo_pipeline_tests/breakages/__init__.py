"""Small damages to every published output, and that a check of its asset notices each."""
