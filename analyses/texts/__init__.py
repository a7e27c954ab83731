"""Texts that come with the package, as files; `interp.analyses.documents` reads them."""
