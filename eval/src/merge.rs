//! Shard reports put together again.

use sightdraft_core::{Error, Result};

use crate::{Report, Run, Shard, Summary};

/// One report of the samples of all `parts`: the same commands, each on its own shard. Errors: parts that differ in what was
/// measured, a shard missing or given twice, a report without samples.
pub fn merge(mut parts: Vec<Report>) -> Result<Report> {
    parts.sort_by_key(|part| part.shard);
    let Some(first) = parts.first().cloned() else {
        return Err(Error::invalid("merge", "at least one report", "none", "name the shards' report.json files"));
    };
    check_shards(&parts)?;
    for part in &parts {
        check_same(&first, part)?;
    }
    let mut whole = first;
    whole.shard = Shard::WHOLE;
    whole.warm_up_seconds = parts.iter().map(|part| part.warm_up_seconds).sum();
    let runs = std::mem::take(&mut whole.runs);
    whole.runs = runs.iter().map(|run| merge_run(run, &parts, whole.seed)).collect::<Result<_>>()?;
    Ok(whole)
}

fn check_shards(parts: &[Report]) -> Result<()> {
    let found: Vec<String> = parts.iter().map(|part| part.shard.to_string()).collect();
    let of = parts[0].shard.of;
    let complete = parts.len() == of && parts.iter().enumerate().all(|(i, p)| p.shard == Shard { index: i + 1, of });
    if complete {
        return Ok(());
    }
    Err(Error::invalid(
        "merge",
        format!("the shards 1/{of} to {of}/{of}, once each"),
        found.join(", "),
        "name each report once",
    ))
}

fn check_same(first: &Report, part: &Report) -> Result<()> {
    let differs = [
        ("seed", first.seed != part.seed),
        ("version", first.versions != part.versions),
        ("tree", first.tree != part.tree),
        ("acceptance rule", first.acceptance != part.acceptance),
        ("top-p or top-k", first.top_p != part.top_p || first.top_k != part.top_k),
        ("weights", first.checkpoints != part.checkpoints),
        ("prompts", first.instructions != part.instructions),
    ];
    match differs.iter().find(|(_, differs)| *differs) {
        None => Ok(()),
        Some((what, _)) => Err(Error::invalid(
            format!("merge: {what} of shard {}", part.shard),
            format!("the same as in shard {}", first.shard),
            "something else",
            "measure all shards with the same command",
        )),
    }
}

fn merge_run(run: &Run, parts: &[Report], seed: u64) -> Result<Run> {
    let mut samples = Vec::new();
    for part in parts {
        match part.runs.iter().find(|other| key(other) == key(run)) {
            // A shard may have got no prompt of a short benchmark.
            Some(other) if !other.samples.is_empty() || other.summary.prompts == 0 => {
                samples.extend(other.samples.iter().cloned());
            }
            _ => {
                return Err(Error::invalid(
                    format!("merge: run {} on {} in shard {}", run.name, run.benchmark, part.shard),
                    "its samples",
                    "none",
                    "merge the report.json files that eval wrote, not what --json printed",
                ));
            }
        }
    }
    Ok(Run { summary: Summary::of(&samples, seed), samples, ..run.clone() })
}

fn key(run: &Run) -> (&str, &str, &str, String) {
    (&run.name, &run.target, &run.benchmark, run.temperature.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    /// The report split in two.
    fn halves() -> Vec<Report> {
        (1..=2)
            .map(|index| {
                let mut part = report();
                part.shard = Shard { index, of: 2 };
                part.warm_up_seconds /= 2.0;
                for run in &mut part.runs {
                    run.samples = run.samples.drain(..).skip(2 * (index - 1)).take(2).collect();
                    run.summary = Summary::of(&run.samples, 1);
                }
                part
            })
            .collect()
    }

    #[test]
    fn merged_shards_equal_the_whole_in_any_order() {
        let mut parts = halves();
        parts.reverse();
        assert_eq!(merge(parts).unwrap(), report());
    }

    #[test]
    fn a_missing_doubled_or_foreign_shard_is_refused() {
        let parts = halves();
        assert!(merge(vec![]).is_err());
        assert!(merge(vec![parts[0].clone()]).is_err());
        assert!(merge(vec![parts[0].clone(), parts[0].clone()]).is_err());
        let mut other = parts.clone();
        other[1].tree.total = 99;
        assert!(merge(other).unwrap_err().to_string().contains("tree of shard 2/2"));
    }

    #[test]
    fn a_report_without_samples_is_refused() {
        let mut parts = halves();
        parts[1] = parts[1].without_samples();
        assert!(merge(parts).unwrap_err().to_string().contains("report.json"));
    }
}
