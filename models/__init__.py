"""The hookable transformer, and everything that makes one: load, tokenize, generate."""
