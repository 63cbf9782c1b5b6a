"""Fronts: the command line (and later the server and batch) over one `Pipeline`."""
