"""Renderer of PDF documents with WeasyPrint in one child process."""
