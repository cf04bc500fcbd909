"""What the worker shows: metrics, health, a status page, logs."""
