"""Page tables of quire.transformers.PagedCache: random sequences of changes against sequences kept apart."""

import numpy as np
import pytest
import quire
from hypothesis import given
from hypothesis import strategies as st
from quire._pages import PageTable

CHANGES = st.lists(
    st.tuples(st.sampled_from(["grow", "grow", "cut", "select", "reset"]), st.integers(0, 2**16)), max_size=12
)


def tokens_of(table, memory, length):
    """[B, length]: what the rows of each sequence hold."""
    rows = np.arange(length)
    pages = table.rows[:, rows // table.page_size]
    return memory[pages + rows % table.page_size]


@given(page_size=st.integers(1, 5), num_pages=st.integers(0, 4), changes=CHANGES)
def test_every_sequence_keeps_its_tokens(page_size, num_pages, changes):
    table, memory = PageTable(page_size, num_pages), np.zeros(0, np.int64)
    wanted = np.zeros((0, 0), np.int64)
    for change, number in changes:
        if change == "grow":
            batch, length = len(wanted) or 1 + number % 3, wanted.shape[1] + number % 7
            begin = wanted.shape[1] if len(wanted) else 0
            copies = table.make_room(batch, begin, length)
            memory = np.concatenate([memory, np.full(table.slots - len(memory), -1)])
            for old, new, count in copies:
                memory[new : new + count] = memory[old : old + count]
            fresh = np.arange(batch * (length - begin)).reshape(batch, -1) + 1000 * number
            wanted = np.concatenate(
                [wanted if len(wanted) else np.zeros((batch, 0), np.int64), fresh], axis=1
            )
            for position in range(begin, length):
                rows = table.rows[:, position // page_size] + position % page_size
                memory[rows] = wanted[:, position]
        elif change == "cut":
            wanted = wanted[:, : number % (wanted.shape[1] + 1)]
            table.cut(wanted.shape[1])
        elif change == "select" and len(wanted):
            chosen = np.random.default_rng(number).integers(0, len(wanted), 1 + number % 4)
            wanted = wanted[chosen]
            table.select(chosen)
        elif change == "reset":
            wanted = np.zeros((0, 0), np.int64)
            table.select([])
        np.testing.assert_array_equal(tokens_of(table, memory, wanted.shape[1]), wanted)
        assert table.used == len(np.unique(table.rows)) and table.rows.max(initial=-1) < table.slots
        assert (np.sort(table.rows // page_size) >= 0).all() and table.slots >= num_pages * page_size


def test_pages_are_shared_until_they_are_written():
    table = PageTable(4)
    table.make_room(1, 0, 10)
    table.select([0, 0, 0])
    assert table.used == 3
    assert len(table.make_room(3, 10, 11)) == 2 and table.used == 5
    assert table.make_room(3, 10, 11) == [] and table.make_room(3, 11, 12) == []
    table.cut(8)
    assert table.used == 2
    table.select([1])
    table.make_room(1, 8, 9)
    assert table.used == 3


def test_wrong_calls():
    for arguments, message in (((0,), "page_size is 0"), ((4, -1), "num_pages is -1")):
        with pytest.raises(quire.Error, match=message):
            PageTable(*arguments)
    table = PageTable(4)
    table.make_room(2, 0, 1)
    with pytest.raises(quire.Error, match="the batch has 3 sequences"):
        table.make_room(3, 1, 2)
