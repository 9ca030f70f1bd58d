"""A language model behind any server that speaks OpenAI's chat completions."""
