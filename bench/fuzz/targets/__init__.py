"""One module for every way in from outside; each holds a `TARGET`."""
