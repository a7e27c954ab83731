"""A report as one HTML file with everything inside it; plain values in, text out."""

from interp.apps.report.content import Code, Column, Figure, Highlight, Report, Section, Table, token
from interp.apps.report.page import render

__all__ = ["Code", "Column", "Figure", "Highlight", "Report", "Section", "Table", "render", "token"]
