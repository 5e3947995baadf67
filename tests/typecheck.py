"""The run-time type checker of the tests: beartype, with int accepted for float as static checkers do."""

from beartype import BeartypeConf, beartype

check_types = beartype(conf=BeartypeConf(is_pep484_tower=True))
