//! The measuring harness: benchmarks, metrics, scoring and reports.
