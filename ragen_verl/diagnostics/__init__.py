"""What tells a healthy run from one that collapses: indicators, drift, mutual information, gradients, the verdict."""
