"""Reports on finished and running runs: tables, curves, pictures and sample pages."""
