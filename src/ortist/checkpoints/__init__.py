"""Reading checkpoints: containers (safetensors), layouts (diffusers directories), names."""
