//! Readers of the official benchmark files and the chart generator.
