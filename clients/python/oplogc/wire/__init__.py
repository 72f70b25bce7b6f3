"""Operations, events and blocks of a stream as bytes, and all errors. No I/O."""
