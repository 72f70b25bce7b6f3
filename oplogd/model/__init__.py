"""Operations, messages, transactions, pointers, leases: values and their rules. No I/O."""
