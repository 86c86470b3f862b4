from app.domain.events import LogEntry
from app.event_log.window import ENTRY_BYTES, Window


def entries(first: int, last: int, size: int = 10) -> list[LogEntry]:
    return [LogEntry(seq, "message.delta", b"x" * size) for seq in range(first, last + 1)]


def numbers(window: Window, after: int, max_bytes: int = 1 << 20) -> list[int]:
    return [entry.seq for entry in window.after(after, max_bytes)]


def test_cursor_reads_what_is_behind_it() -> None:
    window = Window(1, 1 << 20)
    window.add(entries(1, 5))

    assert numbers(window, 0) == [1, 2, 3, 4, 5]
    assert numbers(window, 3) == [4, 5]
    assert numbers(window, 5) == []


def test_window_is_bounded_in_bytes_and_drops_the_oldest() -> None:
    window = Window(1, 10 * (ENTRY_BYTES + 20))
    window.add(entries(1, 25))

    assert (window.first_seq, window.last_seq) == (16, 25)
    assert not window.holds(15)
    assert numbers(window, 20) == [21, 22, 23, 24, 25]


def test_newest_entry_stays_whatever_its_size() -> None:
    window = Window(1, 100)
    window.add(entries(1, 3, size=5000))

    assert numbers(window, 2) == [3]


def test_reading_is_bounded_in_bytes_but_gives_at_least_one() -> None:
    window = Window(1, 1 << 20)
    window.add(entries(1, 5, size=100))

    assert numbers(window, 0, max_bytes=250) == [1, 2]
    assert numbers(window, 0, max_bytes=1) == [1]


def test_log_that_goes_on_has_all_before_it_behind_its_window() -> None:
    window = Window(8, 1 << 20)

    assert (window.last_seq, window.holds(7), window.holds(8)) == (7, False, True)
