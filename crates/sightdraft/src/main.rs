//! The command line. Thin: arguments in, calls to the other crates, printing out.

mod arguments;
mod builtin;
mod commands;
mod costs;
mod demo;
mod grid;
mod lengths;
mod memory;
mod output;
mod recipe;
mod tree;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};

/// Bad input and bad requests end with this.
const FAILURE: u8 = 2;

fn main() -> ExitCode {
    memory::keep_freed();
    one_sentence_per_panic();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("SIGHTDRAFT_LOG"))
        .with_writer(std::io::stderr)
        .init();
    let outcome = match Arguments::parse().command {
        Command::Demo(arguments) => commands::demo::run(&arguments),
        Command::Devices(arguments) => commands::devices::run(&arguments),
        Command::Generate(arguments) => commands::generate::run(&arguments),
        Command::Train(arguments) => commands::train::run(&arguments),
        Command::Grid(arguments) => commands::grid::run(&arguments),
        Command::Regenerate(arguments) => commands::regenerate::run(&arguments),
        Command::Eval(arguments) => commands::eval::run(&arguments),
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Merge(arguments) => commands::merge::run(&arguments),
        Command::Export(arguments) => commands::export::run(&arguments),
        Command::Inspect(arguments) => commands::inspect::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error.to_string().replace('\n', " "));
            ExitCode::from(FAILURE)
        }
    }
}

/// Bad input is an error value everywhere; a panic is a fault of the program. Even then: one sentence, and the exit code that
/// scripts watch for.
fn one_sentence_per_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|at| format!(" ({}:{})", at.file(), at.line())).unwrap_or_default();
        let words = panic.payload_as_str().unwrap_or("no message").replace('\n', " ");
        eprintln!("error: a fault in sightdraft{place}: {words}; please report it with the command you ran");
        std::process::exit(FAILURE.into());
    }));
}
