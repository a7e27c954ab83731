"""One run of a page, as Streamlit calls it for every session."""

from interp.apps.dashboard.shell import main

main()
