"""From an IRModule to a runtime module: options, targets, the registered pipeline."""
