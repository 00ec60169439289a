"""The programs train, sft and eval, behind train.py, train_sft.py and eval.py of a clone and the command d3s."""

import os

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch reads it when it is imported, here by the programs
