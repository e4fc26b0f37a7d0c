"""Read-only questions about TIRx, answered from the TIRx alone."""
