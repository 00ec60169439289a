# d3s on NVIDIA GPUs with the pins of requirements.txt; docs/running.md shows how to run it.
#   docker build -t d3s .                                (with --build-arg UID=$(id -u) if that is not 1000)
# CUDA as in torch's wheels. The devel image, because vLLM, FlashInfer, Triton and DeepSpeed compile kernels on first use
# with nvcc and g++. vLLM's image has other versions than requirements.txt.
FROM nvidia/cuda:13.0.2-devel-ubuntu24.04

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /d3s
ENV PATH=/d3s/.venv/bin:$PATH PYTHONUNBUFFERED=1
COPY requirements.txt .
RUN python3 -m venv .venv && pip install --no-cache-dir -r requirements.txt
COPY . .

# Not root: files of a mounted runs/ then belong to the user of the host, and the sandbox needs no rights. (If that user
# is root, so is this one.) Docker makes the folders above a mount for root, so that of the caches is made here.
ARG UID=1000
ENV HOME=/home/ubuntu
RUN usermod --non-unique --uid "$UID" ubuntu && mkdir -p runs ~/.cache && chown ubuntu . runs ~/.cache
USER $UID
