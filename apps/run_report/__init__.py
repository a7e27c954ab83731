"""The report of a run: one HTML page, and its tables as CSV."""

from interp.apps.run_report.files import PAGE, write
from interp.apps.run_report.page import report

__all__ = ["PAGE", "report", "write"]
