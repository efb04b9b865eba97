"""The pictures of the pages, made of the output of today: `make pictures`."""
