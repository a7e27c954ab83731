"""What `streamlit run` takes: `interp dashboard` does, with the settings that stand beside this file."""

from streamlit.starlette import App

from interp.apps.dashboard.serving import ROOTED

app = App("script.py", middleware=[ROOTED])
