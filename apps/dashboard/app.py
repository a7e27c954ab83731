"""What `streamlit run` takes: `interp dashboard` does, with the settings that stand beside this file."""

from interp.apps.dashboard.shell import main

main()
