"""What the agent measures of itself: health, rates, latencies, turns of the loop."""
