"""The pages, one thin module each: what can be set, what is computed, what is shown of it."""
