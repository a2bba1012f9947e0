//! `sightdraft merge`: shard reports into one.

use std::path::PathBuf;

use clap::Args;
use sightdraft_core::Result;
use sightdraft_core::files::read_json;
use sightdraft_eval::{Report, Run, merge, report::table};

use crate::arguments::ReportArguments;
use crate::output::{print_json, say};

#[derive(Debug, Args)]
pub struct Arguments {
    /// The report.json of every shard.
    #[arg(required = true)]
    reports: Vec<PathBuf>,
    #[command(flatten)]
    report: ReportArguments,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let parts = arguments.reports.iter().map(|path| read_json::<Report>(path)).collect::<Result<_>>()?;
    finish(&merge::merge(parts)?, &arguments.report)
}

/// Writes the report and prints it as asked.
pub fn finish(report: &Report, arguments: &ReportArguments) -> Result<()> {
    report.write(&arguments.out)?;
    for run in report.runs.iter().filter(|run| run.summary.lossless.broken() > 0) {
        let Run { name, benchmark, temperature, summary, .. } = run;
        eprintln!(
            "warning: {name} on {benchmark} at T={temperature}: {} of {} answers are not those of plain decoding",
            summary.lossless.broken(),
            summary.lossless.of
        );
    }
    if arguments.json {
        print_json(&report.without_samples())
    } else {
        say(&table::render(report))?;
        eprintln!("report written to {}", arguments.out.display());
        Ok(())
    }
}
