"""What a run writes while it trains: metrics, warnings, console, and the lock of its directory."""
