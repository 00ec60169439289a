"""Chat templates in the style of published models, and the text that the first of them must give."""

# As Qwen3: an assistant turn begins with empty thoughts if enable_thinking is false.
QWEN3_LIKE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}"
    "{%- endif %}"
    "{%- endif %}"
)
# As Llama 3.2: a date that it sets itself unless it is given; with the tag by which transformers marks responses.
LLAMA_LIKE = (
    "{{- bos_token }}{%- if not date_string is defined %}{%- set date_string = '26 Jul 2024' %}{%- endif %}"
    "{{- 'Today: ' + date_string }}{%- for message in messages %}{%- if message.thinking is defined %}"
    "{%- generation %}{{- message.thinking }}{%- endgeneration %}{%- endif %}"
    "{%- set text = message.content %}{{- text }}{%- if loop.index > 9 %}{%- break %}{%- endif %}{%- endfor %}"
)
# Ignores system turns.
USER_ONLY = "{% for message in messages %}{% if message.role == 'user' %}{{ message.content }}{% endif %}{% endfor %}"


def qwen3_prompt(user: str, system: str | None = None, thinking: bool = True) -> str:
    """What QWEN3_LIKE must give for a user's turn."""
    before = "" if system is None else f"<|im_start|>system\n{system}<|im_end|>\n"
    after = "" if thinking else "<think>\n\n</think>\n\n"
    return f"{before}<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n{after}"
