"""Client of a language model behind any server with OpenAI's chat completions API."""
