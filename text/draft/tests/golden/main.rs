//! The EAGLE-3 head against recordings of the published implementation.

mod eagle3;
