//! Chores of the project: `cargo xtask demo | test | bench | fuzz | soak | corpora | book | api |
//! wheel | dist | libextant`.
#![forbid(unsafe_code)]

mod api;
mod bench;
mod bindings;
mod book;
mod corpora;
mod demo;
mod dist;
mod fuzz;
mod machine;
mod soak;
mod suites;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about, version, arg_required_else_help = true)]
struct Chores {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Make an image of a real tree of this machine, check it, read it back, compare, report
    Demo(demo::Demo),
    /// Install what the tests need where that is allowed, then run all of them
    Test(test::Test),
    /// Measure next to a peer in the same run: interleaved pairs, medians, the ratio
    Bench(bench::Bench),
    /// Run the fuzz harnesses longer than the tests do
    Fuzz(fuzz::Fuzz),
    /// Run random tests for hours; their counts add up in a file
    Soak(soak::Soak),
    /// Make the project's own corpus of whole and damaged images again
    Corpora(corpora::Corpora),
    /// Build the book of docs/src with mdBook, and check its links
    Book(book::Book),
    /// Write the public API of the library, of libextant and of the Python package to docs/api
    Api(api::Api),
    /// Build the wheel for Python
    Wheel(bindings::Wheel),
    /// Make packages: a static binary, .deb files, an OCI layout, a bill of materials
    Dist(dist::Dist),
    /// Build the library for C, and install it with header and pkg-config file
    Libextant(bindings::Libextant),
}

/// The reason that ends a chore early, as one line for a person.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let outcome = match Chores::parse().chore {
        Chore::Demo(demo) => demo.run(),
        Chore::Test(test) => test.run(),
        Chore::Bench(bench) => bench.run(),
        Chore::Fuzz(fuzz) => fuzz.run(),
        Chore::Soak(soak) => soak.run(),
        Chore::Corpora(corpora) => corpora.run(),
        Chore::Book(book) => book.run(),
        Chore::Api(api) => api.run(),
        Chore::Wheel(wheel) => wheel.run(),
        Chore::Dist(dist) => dist.run(),
        Chore::Libextant(libextant) => libextant.run(),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("xtask: {failure}");
        ExitCode::FAILURE
    })
}
