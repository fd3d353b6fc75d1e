"""An adapter for benchmarks/peers.py: a decoding loop of somebody else, timed as a peer.

    python benchmarks/peers.py --path FOLDER --adapter benchmarks/adapters/example.py

FOLDER is put on `sys.path`, so that this file can import a cloned repository that is not installed.
The file defines `decode`. Its first call is not timed: load a drafter there and keep it. The answer
ends with one of the ids in `model.generation_config.eos_token_id`, which is kept, or at the cap.
This example is a plain greedy loop on the library's model.
"""

import torch
from transformers import DynamicCache


def decode(model, tokenizer, prompt_ids: list[int], max_new_tokens: int) -> list[int]:
    """The ids after the prompt. model, tokenizer: the target's, of transformers."""
    ends = set(model.generation_config.eos_token_id)
    cache, read, answer = DynamicCache(config=model.config), prompt_ids, []
    while len(answer) < max_new_tokens and not ends & set(answer[-1:]):
        rows = torch.tensor([read], device=model.device)
        output = model(rows, cache=cache, use_cache=True, logits_to_keep=1)
        answer.append(int(output.logits[0, -1].argmax()))
        read = answer[-1:]
    return answer
