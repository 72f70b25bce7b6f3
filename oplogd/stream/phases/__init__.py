"""What a consumer is in: catching up, live, replication; and the change from one to the next."""
