import pytest

from app.observability.metrics import MAX_LABELS, Metrics


def value(metrics: Metrics, series: str) -> float:
    lines = metrics.render().decode().splitlines()
    (line,) = (line for line in lines if line.rsplit(" ", 1)[0] == series)
    return float(line.rsplit(" ", 1)[1])


def test_a_turn_is_counted_by_agent_and_status_and_timed() -> None:
    metrics = Metrics()
    metrics.turn_started("assistant")
    metrics.first_token("assistant", 0.2)
    metrics.turn_ended("assistant", "completed", 1.5)
    metrics.turn_ended("assistant", "cancelled", None)
    assert value(metrics, 'turnwire_turns_started_total{agent="assistant"}') == 1
    assert value(metrics, 'turnwire_turns_ended_total{agent="assistant",status="completed"}') == 1
    assert value(metrics, 'turnwire_turns_ended_total{agent="assistant",status="cancelled"}') == 1
    assert value(metrics, 'turnwire_time_to_first_token_seconds_sum{agent="assistant"}') == 0.2
    assert value(metrics, 'turnwire_turn_duration_seconds_sum{status="completed"}') == 1.5


def test_listeners_cancels_errors_and_tokens_are_counted() -> None:
    metrics = Metrics()
    metrics.listener_resumed()
    metrics.listener_stalled()
    metrics.cancelled("keep", 0.01)
    metrics.upstream_error("rate_limited")
    metrics.tokens("gpt-5", "input", 100)
    metrics.tokens("gpt-5", "output", 0)
    assert value(metrics, "turnwire_listener_resumes_total") == 1
    assert value(metrics, "turnwire_listener_stalls_total") == 1
    assert value(metrics, 'turnwire_cancel_seconds_count{mode="keep"}') == 1
    assert value(metrics, 'turnwire_upstream_errors_total{code="rate_limited"}') == 1
    assert value(metrics, 'turnwire_tokens_total{kind="input",model="gpt-5"}') == 100


def test_gauges_are_asked_when_somebody_looks() -> None:
    metrics = Metrics()
    running = [3.0]
    metrics.watch("turns_running", lambda: running[0])
    assert value(metrics, "turnwire_turns_running") == 3
    running[0] = 4
    assert value(metrics, "turnwire_turns_running") == 4
    assert value(metrics, "turnwire_turns_queued") == 0


def test_names_that_callers_choose_do_not_grow_without_bound() -> None:
    metrics = Metrics()
    for number in range(MAX_LABELS + 10):
        metrics.tokens(f"model-{number}", "input", 1)
    assert value(metrics, 'turnwire_tokens_total{kind="input",model="other"}') == 10


def test_two_services_in_one_process_share_no_counter() -> None:
    one, other = Metrics(), Metrics()
    one.listener_resumed()
    assert value(other, "turnwire_listener_resumes_total") == 0


@pytest.mark.parametrize("series", ["process_open_fds", "process_resident_memory_bytes"])
def test_the_process_itself_is_shown(series: str) -> None:
    assert value(Metrics(), series) > 0


def test_streams_count_while_they_are_open() -> None:
    metrics = Metrics()
    with metrics.listening(), metrics.listening():
        assert value(metrics, "turnwire_listeners") == 2
    assert value(metrics, "turnwire_listeners") == 0
