# Everything a newcomer needs: `make demo` and `make test` do their own set-up. `make help` lists the rest.
SHELL := /bin/bash
PYTHON := .venv/bin/python
REQUIREMENTS := $(if $(shell command -v nvidia-smi 2>/dev/null),requirements.txt,requirements-cpu.txt)
# One thread per process: a second one gains little at this size, and loses much where another process wants the core.
export OMP_NUM_THREADS := 1
LAUNCH := .venv/bin/accelerate launch --quiet --num_cpu_threads_per_process 1 --config_file
NUMBERS := tests/test_*.py tests/rollout/test_vllm_engine.py tests/end_to_end/test_methods.py tests/end_to_end/test_ranks.py
EVAL := $(PYTHON) eval.py --data synthetic:precedence --n 8 --k 1,8 --limit 256 --max-tokens 64
export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: help setup demo demo-zero3 test test-plain-cpu lint bench-verifier bench-update bench-step bench-rollout bench-scaling bench-learning bench-architectures bench-gpu ablation search clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

setup: .venv/.installed ## make .venv and install the pinned requirements (CPU builds where there is no NVIDIA GPU)

.venv/.installed: $(REQUIREMENTS)
	python3 -m venv .venv
	@$(PYTHON) -m pip install --disable-pip-version-check $(PIP_ARGS) -r $(REQUIREMENTS) || { \
	  echo; echo "The installation failed. If pip found no torch with +cpu, name PyTorch's index of CPU wheels (pytorch.org shows it"; \
	  echo "under Get started): make setup PIP_ARGS='--extra-index-url ADDRESS'"; exit 1; }
	@rm -rf dev/cpu-stubs/*/build dev/cpu-stubs/*/*.egg-info
	@touch $@

demo: setup ## train the embedded default by D3S and show Pass@1 and Pass@8 before and after (minutes on 2 cores)
	@rm -rf runs/demo
	$(LAUNCH) configs/accelerate/cpu.yaml train.py --config configs/tiny.yaml train.output_dir=runs/demo
	@echo "evaluating the base model and the trained one on 256 test problems, side by side"
	@$(EVAL) --model tiny:precedence --output runs/demo/eval-before > runs/demo/eval-before.log 2>&1 & before=$$!; \
	  $(EVAL) --model runs/demo/model --output runs/demo/eval-after && wait $$before || { cat runs/demo/eval-before.log; exit 1; }
	@$(PYTHON) -m d3s.report.demo runs/demo runs/demo/eval-before runs/demo/eval-after

demo-zero3: setup ## the same with two DeepSpeed ZeRO-3 ranks on the CPU
	@rm -rf runs/demo-zero3
	$(LAUNCH) configs/accelerate/zero3_cpu.yaml train.py --config configs/tiny.yaml train.output_dir=runs/demo-zero3
	@$(PYTHON) -m d3s.report runs/demo-zero3

test: setup lint ## the whole suite
	$(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Without vector instructions torch adds and rounds in another order: what holds in both orders holds on other CPUs.
test-plain-cpu: setup ## the tests of numbers once more, as a CPU without vector instructions computes them
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 $(PYTHON) -m pytest $(NUMBERS)

lint: setup ## ruff check and ruff format
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

bench-verifier: setup ## the verifier against math-verify: accuracy, speed, hostile input
	$(PYTHON) -m benchmarks.verifier.compare --hostile

.venv-trl/.installed: $(REQUIREMENTS) benchmarks/requirements-trl.txt
	python3 -m venv .venv-trl
	.venv-trl/bin/python -m pip install --disable-pip-version-check $(PIP_ARGS) -r $(REQUIREMENTS) -r benchmarks/requirements-trl.txt
	@rm -rf dev/cpu-stubs/*/build dev/cpu-stubs/*/*.egg-info
	@touch $@

bench-update: setup .venv-trl/.installed ## one update: D3S, dense GRPO and TRL side by side
	$(PYTHON) -m benchmarks.speed.update

bench-step: setup .venv-trl/.installed ## a whole training step against TRL, vLLM on both sides
	$(PYTHON) -m benchmarks.speed.step

bench-rollout: setup ## generation against bare vLLM, and weight sync
	$(PYTHON) -m benchmarks.speed.rollout

bench-scaling: setup ## cost as G, length, vocabulary and width double
	$(PYTHON) -m benchmarks.speed.scaling

ablation: setup ## every method and control over seeds and base models, into docs/results*.md; resumable (hours)
	$(PYTHON) -m benchmarks.learning.ablation

search: setup ## D3S's options and GRPO's one at a time, in equal seconds, into docs/results-tables.md; resumable (hours)
	$(PYTHON) -m benchmarks.learning.search

bench-architectures: setup ## which model types work with which engine, into docs/architectures.md (minutes)
	$(PYTHON) -m benchmarks.architectures

bench-learning: setup ## GRPO, PODS and D3S to a fixed Pass@1, after the ablation's sweep; resumable
	$(PYTHON) -m benchmarks.learning.time_to_target

bench-gpu: .venv-trl/.installed ## one update at the shapes of Qwen2.5 on a GPU
	.venv-trl/bin/python -m benchmarks.speed.gpu

clean: ## remove the environment and all runs
	rm -rf .venv .venv-trl runs .pytest_cache .ruff_cache .hypothesis
