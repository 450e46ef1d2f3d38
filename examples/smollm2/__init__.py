"""SmolLM2-135M-Instruct answering several prompts at once out of one paged, quantised key/value cache."""
