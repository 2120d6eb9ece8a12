"""`python -m examples.validation_service.manage test -t . examples/validation_service/validations`.

As in any Django project, with its own settings.  The files are not named `test_*.py`, because the process
of pytest has the settings of another project; `examples/validation_service/tests` runs them.
"""
