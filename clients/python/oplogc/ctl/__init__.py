"""The command ``oplogctl``. It speaks HTTP with an agent and knows nothing else of it."""
