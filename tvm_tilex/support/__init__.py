"""Small helpers that know nothing of tiles, TVM or layouts."""
