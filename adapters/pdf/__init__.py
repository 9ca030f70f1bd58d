"""PDF documents, rendered by WeasyPrint in one child process."""
