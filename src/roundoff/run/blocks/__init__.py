"""Running a model block by block, so that a change in one place does not run what comes before it again."""
