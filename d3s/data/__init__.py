"""Problems and prompts: files, hub data sets, embedded tasks, templates and decontamination."""
