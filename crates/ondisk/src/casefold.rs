//! Names compared without their case.
