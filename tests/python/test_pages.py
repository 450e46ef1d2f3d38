"""Page tables of quire.transformers.PagedCache: random sequences of changes against sequences kept apart; and
pages of all heads as rows."""

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


@pytest.mark.parametrize("name", ["int8_g16", "int8_b16_g16"])
def test_pages_of_all_heads(name):
    """As the same tokens in rows of one head; pages that no sequence has keep what they hold."""
    heads, size, dim, length = 3, 32, 64, 75
    generator = np.random.default_rng(5)
    new = [generator.normal(size=(length, heads, dim)).astype(np.float32) for _ in range(2)]
    query = generator.normal(size=(1, 2 * heads, dim)).astype(np.float32)
    numbers = np.array([[5, 0, 3]])

    def attend(sides, pages, **formats):
        common = dict(cachestarts=pages, page_size=size, **formats)
        quire.append(*new, *sides, start_pos=0, **common)
        return quire.attention(query, *sides, kvstarts=[0, length], is_causal=True, **common)[0]

    rows = [np.zeros((length, heads, dim), np.int8) for _ in range(2)]
    rows += [np.zeros((length, heads, dim // 16), np.float16) for _ in range(2)]
    wanted = attend(rows, np.array([[0, 32, 64]]))
    if name == "int8_g16":
        pools = [
            np.full((6, 2, heads, size, dim), 77, np.int8),
            np.full((6, 2, heads, size, dim // 16), 77, np.float16),
        ]
        formats, unit = {}, 1
    else:
        pools = [np.full((6, 2, heads, size // 16, quire.block_bytes(name, dim)), 77, np.uint8)]
        formats, unit = dict(key_format=name, value_format=name), 16
    views = [quire.pages_as_rows(pool[:, side]) for pool in pools for side in (0, 1)]
    got = attend([view for view, _ in views], numbers * views[0][1] * unit, **formats)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
    for pool in pools:
        assert (pool[[1, 2, 4]] == 77).all()
        assert (pool[[0, 3, 5]] != 77).any()


def test_pages_as_rows_wants_whole_rows():
    pool = np.zeros((4, 3, 32, 64), np.int8)
    with pytest.raises(quire.Error, match=r"pages has 3 dimensions: must be 4, \[MaxP, Hk, P, width\]"):
        quire.pages_as_rows(pool[0])
    with pytest.raises(quire.Error, match="pages has strides .*: rows must be contiguous"):
        quire.pages_as_rows(pool[..., ::2])
    uneven = np.lib.stride_tricks.as_strided(pool, (2, 3, 32, 64), (6200, 2048, 64, 1))
    with pytest.raises(quire.Error, match="pages a whole number of rows apart"):
        quire.pages_as_rows(uneven)
