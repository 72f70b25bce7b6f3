"""Topics in MongoDB: their catalogue, their logs, and the appends to them."""
