"""What reacts to training: each controller observes metrics or outcomes and keeps a state that checkpoints store."""
