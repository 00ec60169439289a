"""Problems and prompts: files, hub data sets, synthetic tasks, templates and decontamination."""
