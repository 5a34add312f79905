"""A program for the package `rwkv`, on wingbeat."""

from pathlib import Path

from wingbeat.rwkv import PIPELINE, PIPELINE_ARGS, RWKV

# Your program names its checkpoint and `rwkv_vocab_v20230424` here. This repository has a small model with a vocabulary of its own.
assets = Path(__file__).parents[3] / "assets"
model = RWKV(model=str(assets / "models" / "small-world"), strategy="cpu fp32")
pipeline = PIPELINE(model, str(assets / "vocab" / "small-world.txt"))

args = PIPELINE_ARGS(temperature=1.0, top_p=0.5, alpha_frequency=0.2, alpha_presence=0.2, token_stop=[0])
pipeline.generate("Once upon a time", token_count=20, args=args, callback=lambda text: print(text, end="", flush=True))
print()

out, state = model.forward(pipeline.encode("Once upon a time"), None)
out, state = model.forward(pipeline.encode(" there")[0], state)
print(out.shape, len(state))
