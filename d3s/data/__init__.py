"""Problems: files, hub data sets, embedded tasks, prompts and decontamination."""
