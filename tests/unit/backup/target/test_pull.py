"""The parts of a disk that are read, from the server's report of zeros and bitmaps, in aligned
blocks."""

import random

import pytest

from saltvirt import errors
from saltvirt.backup.target import exports, pull
from saltvirt.backup.target.exports import ALLOCATION, DATA, ZEROS, Extent

FIRST, SECOND = "qemu:dirty-bitmap:a", "qemu:dirty-bitmap:b"
BLOCK = 4096


class Told:
    """A server that tells of each block, and of as many of them at a time as it likes."""

    def __init__(self, blocks, seed, silent=()):
        self.blocks, self.random, self.silent = blocks, random.Random(seed), silent

    def block_status(self, count, offset, told):
        for context, flags in self.blocks.items():
            if context in self.silent:
                continue
            at, runs = offset, []
            asked = self.random.randint(1, count // BLOCK) * BLOCK
            while at < offset + asked:
                flag = flags[at // BLOCK]
                if len(runs) > 1 and runs[-1] == flag and self.random.random() < 0.8:
                    runs[-2] += BLOCK
                else:
                    runs += [BLOCK, flag]
                at += BLOCK
            told(context, offset, runs, 0)


def wanted(blocks, contexts):
    """The blocks that are to be read, and how."""
    found = {}
    for number, allocation in enumerate(blocks[ALLOCATION]):
        if not contexts or any(blocks[one][number] & 1 for one in contexts):
            found[number] = ZEROS if allocation & 2 else DATA
    return found


@pytest.mark.parametrize("contexts", [(), (FIRST,), (FIRST, SECOND)])
@pytest.mark.parametrize("seed", range(30))
def test_extents_are_what_the_server_tells_of_each_block(seed, contexts):
    chance = random.Random(seed)
    count = chance.randint(1, 60)
    blocks = {ALLOCATION: [chance.choice([0, 0, 3, 2]) for _ in range(count)]}
    blocks |= {one: [chance.choice([0, 0, 1]) for _ in range(count)] for one in contexts}
    found, end = {}, 0
    for one in exports.extents(Told(blocks, seed), count * BLOCK, contexts):
        assert one.offset >= end and one.length > 0
        end = one.end
        found |= dict.fromkeys(range(one.offset // BLOCK, one.end // BLOCK), one.kind)
    assert found == wanted(blocks, contexts)


def test_a_server_that_does_not_tell_of_a_bitmap_is_an_error():
    blocks = {ALLOCATION: [0] * 4, FIRST: [1] * 4}
    told = Told(blocks, 1, silent=(FIRST,))
    with pytest.raises(
        errors.OperationFailed, match="does not report the block status at offset 0"
    ):
        list(exports.extents(told, 4 * BLOCK, (FIRST,)))


@pytest.mark.parametrize("cluster", [pull._SECTOR, pull.CLUSTER_BYTES])
@pytest.mark.parametrize("seed", range(60))
def test_what_is_read_are_whole_sectors_or_clusters_and_each_once(seed, cluster):
    """One of which anything is data, or which is told of in part, is data; no byte that was told of
    is missing, and none of another one is there."""
    chance, block = random.Random(seed), cluster // 4
    kinds = [chance.choice([DATA, DATA, ZEROS, None]) for _ in range(chance.randrange(4, 90, 4))]
    given = [Extent(n * block, block, kind) for n, kind in enumerate(kinds) if kind]
    found, end = {}, 0
    for one in pull._align(merged(given), cluster):
        assert one.offset >= end and one.length > 0
        assert one.offset % cluster == one.length % cluster == 0
        end = one.end
        found |= dict.fromkeys(range(one.offset // cluster, one.end // cluster), one.kind)
    fours = {n: set(kinds[4 * n : 4 * n + 4]) for n in range(len(kinds) // 4)}
    wanted = {n: ZEROS if told == {ZEROS} else DATA for n, told in fours.items() if told != {None}}
    assert found == wanted


def merged(extents):
    """Those of a kind that touch are one, as a server tells of them."""
    found = []
    for one in extents:
        last = found[-1] if found else None
        if last and (last.end, last.kind) == (one.offset, one.kind):
            found[-1] = Extent(last.offset, last.length + one.length, one.kind)
        else:
            found.append(one)
    return found


def test_data_is_cut_at_the_grid_and_zeros_are_not():
    grid = pull.BLOCK_BYTES
    given = [Extent(grid - 512, 2 * grid, DATA), Extent(5 * grid, 9 * grid, ZEROS)]
    assert list(pull._split(given)) == [
        Extent(grid - 512, 512, DATA),
        Extent(grid, grid, DATA),
        Extent(2 * grid, grid - 512, DATA),
        Extent(5 * grid, 9 * grid, ZEROS),
    ]


class Disk:
    """What a source holds, or a sink was given."""

    def __init__(self, size):
        self.held = bytearray(b"\xee" * size)
        self.zeroed = []

    def pread(self, length, offset):
        return self.held[offset : offset + length]

    def pwrite(self, data, offset):
        self.held[offset : offset + len(data)] = data

    def zero(self, length, offset):
        self.zeroed.append((offset, length))
        self.held[offset : offset + length] = bytes(length)


@pytest.mark.parametrize("overlay", [False, True])
def test_zeros_are_written_where_something_is_below(overlay):
    """Also data that is nothing but zeros."""
    size = 3 * pull.BLOCK_BYTES
    source, sink = Disk(size), Disk(size)
    source.held[pull.BLOCK_BYTES : 2 * pull.BLOCK_BYTES] = bytes(pull.BLOCK_BYTES)
    kinds = [Extent(0, 2 * pull.BLOCK_BYTES, DATA), Extent(2 * pull.BLOCK_BYTES, 4096, ZEROS)]
    found = list(
        pull._DiskCopy([source] * pull.READERS, [sink] * pull.READERS, overlay).copy_all(kinds)
    )
    assert [(one.offset_bytes, one.length_bytes, one.sha256 == "zero") for one, _ in found] == [
        (0, pull.BLOCK_BYTES, False),
        (pull.BLOCK_BYTES, pull.BLOCK_BYTES, True),
        (2 * pull.BLOCK_BYTES, 4096, True),
    ]
    assert [moved for _, moved in found] == [pull.BLOCK_BYTES, pull.BLOCK_BYTES, 0]
    assert sink.held[: pull.BLOCK_BYTES] == source.held[: pull.BLOCK_BYTES]
    assert bool(sink.zeroed) is overlay


def test_more_than_was_told_is_not_read_and_a_full_target_ends_it(tmp_path, monkeypatch):
    told, watched = [], []
    progress = pull._PullProgress(3 * pull.MIB, told.append, None, str(tmp_path), watched.append)
    progress.add(pull.MIB)
    assert told == [{"done_bytes": pull.MIB, "total_bytes": 3 * pull.MIB}]
    assert watched == [pull.SILENT_S]
    with pytest.raises(errors.OperationFailed, match="more data than it reported"):
        progress.add(2 * pull.MIB + 1)
    assert len(told) == len(watched) == 1
    # others write there, too
    monkeypatch.setattr(pull, "RESERVED_BYTES", 2**62)
    monkeypatch.setattr(pull, "_REPORT_S", 0)
    full = pull._PullProgress(pull.MIB, told.append, None, str(tmp_path))
    with pytest.raises(errors.OperationFailed, match=r"the target has .* free, after 1 B were"):
        full.add(1)
    assert len(told) == 1


def test_so_much_is_read_a_second_at_most(monkeypatch):
    """From the first on: what is read counts before it is waited for."""
    now, slept = [100.0], []
    monkeypatch.setattr(pull.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(pull.time, "sleep", lambda s: (slept.append(s), now.append(0)))
    progress = pull._PullProgress(10 * pull.MIB, lambda told: None, bandwidth_mib_s=2)
    progress.add(pull.MIB)
    now[0] = 100.6
    progress.add(pull.MIB)
    now[0] = 101.5  # late enough by itself
    progress.add(pull.MIB)
    assert slept == [pytest.approx(0.5), pytest.approx(0.4)]
