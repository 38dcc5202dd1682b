"""The OpenAPI document says what the server does: schemathesis finds no 500 and no answer that it does not tell of."""

import pytest
from running import Running

schemathesis = pytest.importorskip("schemathesis")


def test_nothing_undocumented(full: Running) -> None:
    from hypothesis import HealthCheck, settings
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [schemathesis.checks.not_a_server_error, status_code_conformance, content_type_conformance]
    schema = schemathesis.openapi.from_url(f"{full.url}/openapi.json")
    failures: list[str] = []
    for operation in schema.get_all_operations():
        made = operation.ok()

        @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        def ask(case: object) -> None:
            case.call_and_validate(checks=[*checks, response_schema_conformance])  # type: ignore[attr-defined]

        try:
            schemathesis_given(made, ask)
        except Exception as wrong:
            failures.append(f"{made.method} {made.path}: {wrong}")
    assert not failures, "\n".join(failures)


def schemathesis_given(operation: object, ask: object) -> None:
    from hypothesis import given

    given(case=operation.as_strategy())(ask)()  # type: ignore[attr-defined]
