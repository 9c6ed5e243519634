"""The training on a page: read from the logs within bounds, ranks compared."""

from __future__ import annotations

from pathlib import Path

from ascend_runner import files
from ascend_runner.views import page_training
from ascend_runner.views.page_training import Point, Series, points_of
from tests.views.conftest import Write, document, rank, rendered

LINE = "Epoch: [{}][{}/100]  eta: 0:00:40  loss: {:.4f}  time: {}  data: 0.01\n"


def lines(rank_id: int, count: int = 100) -> bytes:
    """Return the log of a rank, of which rank 5 is slow."""
    seconds = 0.6 if rank_id == 5 else 0.4
    return "".join(LINE.format(0, step, 7 - step / 20, seconds) for step in range(1, count + 1)).encode()


def test_points() -> None:
    """Figures in several lines belong to one step; steps go on counting in the next epoch."""
    data = b"step 1 loss 3.0\nsaved\nper step time: 250 ms\nstep 2 loss nan\nepoch 2 step 1, loss: 2.0\n"

    assert (
        Point(step=1, loss=3.0, seconds=0.25),
        Point(step=2, loss=None, seconds=None),
        Point(step=3, loss=2.0, seconds=None),
    ) == points_of([data])


def test_bars_of_other_activities() -> None:
    """They are drawn only if the log has no steps of the training."""
    bars = b"".join(b"Processing:  50%%|5   | %d/9 [00:01<00:01,  5.00it/s]\n" % step for step in (1, 2))

    assert (1, 2) == tuple(point.step for point in points_of([bars]))
    assert (Point(step=4, loss=2.0, seconds=None),) == points_of([bars, b"step 4 loss 2.0\n", bars])


def test_page(write: Write) -> None:
    """The page has both charts and compares the ranks; the slow one comes first."""
    text = rendered(write(document(8), lines))

    assert 'aria-label="Loss from ' in text
    assert 'aria-label="Time per step from ' in text
    assert text.index('<tr class="slow"><th scope="row">rank 5, slow</th>') < text.index('<th scope="row">rank 0</th>')


def test_public_page(write: Write) -> None:
    """A page for publication has nothing of the logs."""
    assert 'id="training"' not in rendered(write(document(8), lines), is_public=True)


def test_ranks_without_output(write: Write) -> None:
    """They do not count among those of which there was no time to read the logs."""
    members = [rank(one, log_size=0 if one else 5000) for one in range(100)]
    text = rendered(write(document(100, ranks=members), lambda rank_id: b"" if rank_id else lines(0)))

    assert 'id="training"' in text
    assert "Not drawn" not in text


def test_no_steps(write: Write) -> None:
    """Without steps in the logs there is no section."""
    assert 'id="training"' not in rendered(write(document(8), lambda _rank: b"nothing\n"))


def test_long_log(write: Write) -> None:
    """Of a long log, parts are read from the first line to the last, and the page says so."""
    text = rendered(write(document(2), lambda rank_id: lines(rank_id, 100) + (b"x" * 4000 + b"\n") * 1000))

    assert "Parts of long logs were read, spread from the first line to the last: ranks 0, 1." in text


def test_parts(tmp_path: Path) -> None:
    """The parts of a file are whole lines, among them the first and the last one."""
    path = tmp_path / "log"
    path.write_text("".join(f"{number:09}\n" for number in range(1000)))
    parts, is_less = files.read_parts(str(path), 1000, 4)
    found = [line for part in parts for line in part.splitlines()]

    assert is_less
    assert (b"000000000", b"000000999") == (found[0], found[-1])
    assert {9} == {len(line) for line in found}
    assert ([path.read_bytes()], False) == files.read_parts(str(path), 10_000, 4)
    assert ([], False) == files.read_parts(str(tmp_path), 10, 4)


def test_loss_of_zero() -> None:
    """It is drawn like any other; what is unknown of all ranks has no column."""
    drawn = page_training.draw({0: Series(points=points_of([b"step 1 loss 2.0\nstep 2 loss 0.0\n"]))})

    assert drawn
    assert ["Loss from 2 at step 1 to 0 at step 2"] == [chart.words for chart in drawn.charts]
    assert ("Rank", "Last step", "Last loss") == drawn.heads


def test_many_ranks() -> None:
    """A few ranks are drawn, the slow ones first, and the others named."""
    series = {one: Series(points=points_of([lines(5 if one == 60 else 0)])) for one in range(64)}
    drawn = page_training.draw(series)

    assert drawn
    assert page_training.MOST_LINES == len(drawn.rows)
    assert "rank 60, slow" == drawn.rows[0][1][0]
    assert "Not drawn: ranks 7-59, 61-63." == drawn.rest
