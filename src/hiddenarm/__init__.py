"""hiddenarm."""
