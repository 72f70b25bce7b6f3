"""Detect truncated compressed files. Spark would read them without an error."""

from pathlib import Path

# The footer of .bz2: 48 bits of mark, 32 bits of checksum, and up to 7 bits to fill the last byte.
BZ2_TAIL_BYTES = 11

_BZ2_FOOTER = 0x177245385090
_ZST_FRAME = 0xFD2FB528
_ZST_SKIPPED_FRAME = 0x184D2A50


def bz2_is_whole(tail: bytes) -> bool:
    """Return whether a .bz2 file has its footer. ``tail``: its last BZ2_TAIL_BYTES."""
    bits = int.from_bytes(tail)
    return any((bits >> (fill + 32)) & ((1 << 48) - 1) == _BZ2_FOOTER for fill in range(8))


def zst_is_whole(path: Path) -> bool:
    """Return whether the last frame of a .zst file is complete, by its length."""
    size = path.stat().st_size
    with path.open("rb") as file:
        while head := file.read(4):
            magic = int.from_bytes(head, "little")
            if magic == _ZST_FRAME:
                descriptor = int.from_bytes(file.read(1))
                is_single = descriptor >> 5 & 1
                content_size = (is_single, 2, 4, 8)[descriptor >> 6]
                dictionary = (0, 1, 2, 4)[descriptor & 3]
                file.seek((1 - is_single) + dictionary + content_size, 1)
                is_last = 0
                while not is_last:
                    if len(block := file.read(3)) < 3:
                        return False
                    header = int.from_bytes(block, "little")
                    is_last, is_repeated = header & 1, header >> 1 & 3 == 1
                    file.seek(1 if is_repeated else header >> 3, 1)
                file.seek(4 * (descriptor >> 2 & 1), 1)
            elif magic & ~0xF == _ZST_SKIPPED_FRAME:
                file.seek(int.from_bytes(file.read(4), "little"), 1)
            else:
                return len(head) == 4  # reading the file gives a better error
            if file.tell() > size:
                return False
    return True
