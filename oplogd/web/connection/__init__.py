"""One HTTP connection on top of uvicorn: bounds on size and time, refusals, pauses."""
