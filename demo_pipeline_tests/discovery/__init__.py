"""Discovery: what is decided, remembered and asked for, and a world in which all goes wrong."""
