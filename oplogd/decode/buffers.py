"""Types of text as it came. No I/O."""

import msgspec

# A body that was received or decompressed.
Buffer = bytes | bytearray

# JSON text.
Text = bytes | bytearray | memoryview | msgspec.Raw
