"""The seam to TVM: version-sensitive names, registered operators, attributes, walking."""
