"""Files of every kind the project reads or writes: each once."""
