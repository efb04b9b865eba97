"""Clock offset, canvas and scale of a recording."""
