"""One file per family of published models: a table of tensor names, and how its configuration reads."""
