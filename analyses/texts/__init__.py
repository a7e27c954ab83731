"""Texts that come with the package, as files: documents and facts; `documents` and `fact_data` read them."""
