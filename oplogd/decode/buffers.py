"""Types of text as it came. No I/O."""

import msgspec

# A received or decompressed body.
Buffer = bytes | bytearray

# JSON text.
Text = bytes | bytearray | memoryview | msgspec.Raw
