"""Settings for all tests."""

from hypothesis import settings

# The same examples in every run: a change fails its own tests, not those of whoever runs them next.
# To look for new examples: pytest --hypothesis-profile=explore.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("repeatable")
