//! `bicubic` as PIL does it, in fixed point.
