"""Studies: models × analyses × data, run in batches that survive being killed.

    study = load_study("induction")
    outcome = run_study(study, "out/induction")
    interp.open_run(outcome.folder).frame()

A study is a TOML file (`file`), read and checked as a whole (`reading`, `checks`, `problems`); analyses take part by a
table of tasks (`registry`). What will be run is planned from tokenizers and configurations alone (`planning`), run
batch by batch into a run directory (`running`), and told in means with intervals (`summaries`).
"""

from interp.analyses.study.file import Study as Study
from interp.analyses.study.merging import merge_studies as merge_studies
from interp.analyses.study.planning import StudyPlan as StudyPlan
from interp.analyses.study.planning import plan_study as plan_study
from interp.analyses.study.problems import StudyError as StudyError
from interp.analyses.study.reading import load_study as load_study
from interp.analyses.study.ready import ready_studies as ready_studies
from interp.analyses.study.registry import tasks as tasks
from interp.analyses.study.running import Outcome as Outcome
from interp.analyses.study.running import StudyEvent as StudyEvent
from interp.analyses.study.running import resume_study as resume_study
from interp.analyses.study.running import run_study as run_study
from interp.analyses.study.summaries import JobSummary as JobSummary
from interp.analyses.study.summaries import summarise as summarise
from interp.analyses.study.validating import Problem as Problem
from interp.analyses.study.validating import Validation as Validation
from interp.analyses.study.validating import validate_study as validate_study
