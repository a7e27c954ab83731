"""Studies: models × analyses × data, run in batches that survive being killed.

    study = load_study("induction")
    outcome = run_study(study, "out/induction")
    interp.open_run(outcome.folder).frame()

A study is a TOML file (`file`), read and checked as a whole (`reading`, `checks`, `problems`); analyses take part by a
table of tasks (`registry`). What will be run is planned from tokenizers and configurations alone (`planning`), run
batch by batch into a run directory (`running`), and told in means with intervals (`summaries`).
"""

from interp.analyses.study.file import Study as Study
from interp.analyses.study.problems import StudyError as StudyError
from interp.analyses.study.reading import load_study as load_study
from interp.analyses.study.registry import tasks as tasks
