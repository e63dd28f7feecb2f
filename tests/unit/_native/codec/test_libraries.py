"""The codecs' C libraries beside the packages that contain them: loading, equal output, and no GIL."""

import gzip
import random
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator

import isal
import lz4.frame
import pytest
import zstandard

from kbatch import CorruptRecordError
from kbatch._native.codec import libraries
from kbatch._native.codec.compression import compress, decompress
from kbatch.codecs import CODEC_NAMES
from tests import ROOT
from tests.support.rival import Rival

CODECS = CODEC_NAMES[1:]
GZIP, LZ4, ZSTD = (CODEC_NAMES.index(name) for name in ("gzip", "lz4", "zstd"))
WORDS = b"some words that come again, "
DATA = [
    b"",
    b"x",
    WORDS * 3,
    random.Random(1).randbytes(70_000),
    random.Random(2).randbytes(40_000) + WORDS * 9_000,
    bytes(300_000),
]
IDS = ["none", "one", "small", "random", "mixed", "zeros"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="extensions of Windows export no symbols")


@pytest.fixture
def by_package() -> Iterator[Callable[[int], None]]:
    """Leave codecs to their packages until the test ends."""
    left: list[int] = []

    def leave(codec: int) -> None:
        left.append(codec)
        libraries.leave_to_package(codec)

    yield leave
    for codec in left:
        libraries.reload_library(codec)


@pytest.mark.parametrize("codec", CODECS)
def test_codec_is_read_by_its_library(codec: str) -> None:
    """With the packages that these tests install, nothing falls back to the GIL unnoticed."""
    assert libraries.is_native(CODEC_NAMES.index(codec))


# The same bytes as the packages'


@pytest.mark.parametrize("data", DATA, ids=IDS)
@pytest.mark.parametrize("level", [None, -100, -1, 1, 3, 7, 12, 19])
def test_zstd_writes_what_its_package_writes(data: bytes, level: int | None) -> None:
    package = zstandard.ZstdCompressor(level=3 if level is None else level)
    assert compress(data, "zstd", level) == package.compress(data)


@pytest.mark.parametrize("data", DATA, ids=IDS)
@pytest.mark.parametrize("level", [None, 1, 3, 9, 12, 17])
def test_lz4_writes_what_its_package_writes(data: bytes, level: int | None) -> None:
    assert compress(data, "lz4", level) == lz4.frame.compress(
        data,
        compression_level=0 if level in (None, 9) else min(max(level or 0, 3), 12),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )


@pytest.mark.parametrize("data", DATA, ids=IDS)
@pytest.mark.parametrize("level", range(1, 10))
def test_gzip_with_a_level_writes_what_zlib_writes(data: bytes, level: int) -> None:
    assert compress(data, "gzip", level) == zlib.compress(data, level, 31)


@pytest.mark.parametrize("data", DATA, ids=IDS)
def test_gzip_without_a_level_is_as_small_as_isals(data: bytes, by_package: Callable[[int], None]) -> None:
    ours = compress(data, "gzip")
    assert gzip.decompress(ours) == data
    by_package(GZIP)
    assert abs(len(ours) - len(compress(data, "gzip"))) <= 8 + len(data) // 1000


def test_a_zstd_block_beyond_what_its_frame_claims_is_corrupt() -> None:
    """However much room there is; libzstd calls it a matter of room in some."""
    frame = bytes.fromhex("28b52ffda083110100e50000a080c60800000001066464630206e98db5e0c5085a7f00d82272c004")
    with pytest.raises(CorruptRecordError, match="Data corruption detected"):
        decompress(frame, "zstd")


# Loading


def test_unknown_isal_is_left_to_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """zlib reads then, and isal's package still writes the default level."""
    data = random.Random(3).randbytes(500) + WORDS * 5_000
    ours = len(compress(data, "gzip"))
    monkeypatch.setattr(isal, "ISAL_MAJOR_VERSION", 3)
    libraries.reload_library(GZIP)
    try:
        assert libraries.is_native(GZIP)
        packed = compress(data, "gzip")
        assert abs(len(packed) - ours) < 100
        assert packed != compress(data, "gzip", 1)
        assert decompress(packed, "gzip") == data
    finally:
        monkeypatch.undo()
        libraries.reload_library(GZIP)


@pytest.mark.slow
def test_packages_do_all_that_libraries_do() -> None:
    """All cases of the codecs hold without the libraries, as on Windows."""
    code = """
import sys
from kbatch._native.codec import libraries
for codec in (1, 2, 3, 4):
    libraries.leave_to_package(codec)
assert [libraries.is_native(codec) for codec in (1, 2, 3, 4)] == [False, True, False, False]
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-k", "not isal", *sys.argv[1:]]))
"""
    files = [f"tests/unit/_native/codec/test_{name}.py" for name in ("compression", "encode_decode")]
    done = subprocess.run([sys.executable, "-c", code, *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_first_use_may_come_from_many_threads() -> None:
    code = """
import threading
from kbatch._native.codec.compression import compress, decompress
from kbatch.codecs import CODEC_NAMES
start = threading.Barrier(8)
done = []
def work(codec):
    start.wait()
    done.append(decompress(compress(b"some words, " * 999, codec), codec) == b"some words, " * 999)
threads = [threading.Thread(target=work, args=(codec,)) for codec in CODEC_NAMES[1:] * 2]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert done == [True] * 8, done
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# The GIL


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_other_threads_run_during_decompression(codec: str) -> None:
    packed = compress(random.Random(4).randbytes(30_000) + WORDS * 900, codec)
    with Rival() as rival:
        assert rival.had_a_turn_during(lambda: decompress(packed, codec))


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_other_threads_run_during_compression(codec: str) -> None:
    data = random.Random(5).randbytes(30_000)
    with Rival() as rival:
        assert rival.had_a_turn_during(lambda: compress(data, codec))


@pytest.mark.parametrize("codec", CODECS)
def test_small_streams_keep_the_gil(codec: str) -> None:
    packed = compress(WORDS * 3, codec)
    with Rival() as rival:
        assert rival.turns_during(lambda: decompress(packed, codec)) == 0


@pytest.mark.parametrize("codec", CODECS)
def test_threads_decode_different_streams_at_once(codec: str) -> None:
    """Contexts move from thread to thread, also after a failure."""
    streams = [(data, compress(data, codec)) for data in DATA]
    wrong: list[object] = []

    def work(seed: int) -> None:
        source = random.Random(seed)
        for _ in range(60):
            data, packed = source.choice(streams)
            if source.random() < 0.3:
                try:
                    decompress(packed[: source.randrange(len(packed))], codec)
                    wrong.append("a stream that is cut off was read")
                except CorruptRecordError:
                    pass
            if decompress(packed, codec) != data or decompress(compress(data, codec), codec) != data:
                wrong.append(len(data))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
