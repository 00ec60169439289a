"""Reports of finished and running runs: tables, curves, pictures and sample pages."""
