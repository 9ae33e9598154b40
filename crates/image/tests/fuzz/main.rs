//! Bolero harnesses for untrusted inputs: archives, image layouts, options and configurations of
//! mkfs. As tests they run for a moment each; `cargo xtask fuzz` runs them for longer.

mod archives;
mod layouts;
mod mkfs;
#[path = "../source/shown.rs"]
#[allow(dead_code, reason = "written for the suite of sources, a part is used here")]
mod shown;
#[path = "../source/written.rs"]
#[allow(dead_code, reason = "written for the suite of sources, a part is used here")]
mod written;
