"""The demo: four questions to a real model, answered in a minute, with a report that says what it does not show."""
