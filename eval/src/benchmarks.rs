//! The registry: what `--benchmarks` can name.
