"""The programs train, sft and eval, behind train.py, train_sft.py and eval.py of a clone and the command d3s."""
