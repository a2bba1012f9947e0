//! The aligned tables: at most 100 columns wide for names of ordinary length.

use crate::{Report, Run};

/// Positions in the draft that the last table has room for; report.json has all.
const POSITIONS: usize = 8;

/// A column: its heads, one above the other, and what it says of a run.
struct Column {
    heads: [&'static str; 2],
    cell: fn(&Run) -> String,
}

const fn column(upper: &'static str, lower: &'static str, cell: fn(&Run) -> String) -> Column {
    Column { heads: [upper, lower], cell }
}

/// What every table begins with.
const WHICH: [Column; 3] = [
    column("", "benchmark", |run| run.benchmark.clone()),
    column("", "T", |run| run.temperature.to_string()),
    column("", "run", |run| run.name.clone()),
];

/// Columns of words, aligned left; numbers are aligned right.
const WORDS: [usize; 2] = [0, 2];

const RESULTS: [Column; 7] = [
    column("accepted", "per pass", |run| format!("{:.3}", run.summary.accepted_per_pass)),
    column("emitted", "per pass", |run| format!("{:.3}", run.summary.emitted_per_pass)),
    column("", "speedup", |run| format!("{:.2}x", run.summary.speedup)),
    column("95%", "interval", interval),
    column("", "tokens/s", |run| format!("{:.1}", run.summary.tokens_per_second)),
    column("", "lossless", |run| lossless(run).split(',').next().unwrap_or_default().to_string()),
    column("", "score", |run| run.summary.score.map_or("-".into(), |score| format!("{score:.3}"))),
];

const SECONDS: [Column; 6] = [
    column("seconds:", "prefill", |run| format!("{:.1}", run.summary.seconds.prefill)),
    column("", "draft", |run| format!("{:.1}", run.summary.seconds.draft)),
    column("", "verify", |run| format!("{:.1}", run.summary.seconds.verify)),
    column("", "other", |run| format!("{:.1}", run.summary.seconds.other)),
    column("greedy path", "pruned", |run| share(run, run.summary.greedy_path_pruned)),
    column("greedy path", "accepted", |run| share(run, run.summary.accepted_path_is_greedy)),
];

const MEANS: [Column; 4] = [
    column("accepted", "per pass", |run| format!("{:.3}", run.summary.accepted_per_pass_mean)),
    column("emitted", "per pass", |run| format!("{:.3}", run.summary.emitted_per_pass_mean)),
    column("", "speedup", |run| format!("{:.2}x", run.summary.speedup_mean)),
    column("", "prompts", |run| run.summary.prompts.to_string()),
];

/// The report as text, a line per run in each table.
pub fn render(report: &Report) -> String {
    let runs: Vec<&Run> = report.runs.iter().collect();
    let scored = runs.iter().any(|run| run.summary.score.is_some());
    let mut text = table(&runs, &RESULTS[..if scored { RESULTS.len() } else { RESULTS.len() - 1 }]);
    for run in runs.iter().filter(|run| run.summary.lossless.ties > 0) {
        let words = "part from the plain answer at a tie of the target's logits (1e-5)";
        text.push_str(&format!("{}, T={}: {} {words}\n", run.name, run.temperature, run.summary.lossless.ties));
    }
    // A lossless draft scores what plain decoding scores.
    for run in runs.iter().filter(|run| run.draft.is_none() && run.summary.score_by_category.len() > 1) {
        let kinds: Vec<String> =
            run.summary.score_by_category.iter().map(|(kind, score)| format!("{kind} {score:.3}")).collect();
        text.push_str(&format!("score of {} at T={}: {}\n", run.benchmark, run.temperature, kinds.join(", ")));
    }
    text.push_str(
        "\nWhere the time goes; how often the draft's greedy path is pruned from its own tree, or accepted:\n",
    );
    text.push_str(&table(&runs, &SECONDS));
    text.push_str("\nMeans over answers (above: all passes and seconds pooled):\n");
    text.push_str(&table(&runs, &MEANS));
    text.push_str(&positions(&runs));
    text.push_str(&format!(
        "\n{}; seed {}; tree of {} nodes, depth {}, top {}; {:.1} s of warm-up before\n",
        report.device, report.seed, report.tree.total, report.tree.depth, report.tree.top_k, report.warm_up_seconds
    ));
    text
}

fn table(runs: &[&Run], columns: &[Column]) -> String {
    let columns: Vec<&Column> = WHICH.iter().chain(columns).collect();
    let heads = (0..2).map(|line| columns.iter().map(|c| c.heads[line].to_string()).collect());
    let rows = runs.iter().map(|run| columns.iter().map(|c| (c.cell)(run)).collect());
    align(&heads.chain(rows).collect::<Vec<_>>())
}

/// Acceptance by position, two lines per draft; empty if there is none.
fn positions(runs: &[&Run]) -> String {
    let drafts = || runs.iter().filter(|run| !run.summary.acceptance_by_position.joint.is_empty());
    let deepest = drafts().map(|run| run.summary.acceptance_by_position.joint.len()).max().unwrap_or(0).min(POSITIONS);
    if deepest == 0 {
        return String::new();
    }
    let which = |run: &Run| WHICH.iter().map(|c| (c.cell)(run)).collect::<Vec<_>>();
    let line = |first: Vec<String>, values: &[f64]| {
        let values = (0..deepest).map(|i| values.get(i).map_or("-".into(), |v| format!("{:.1}%", 100.0 * v)));
        first.into_iter().chain(values).collect::<Vec<_>>()
    };
    let mut rows = vec![WHICH.iter().map(|c| c.heads[1].to_string()).collect::<Vec<_>>()];
    rows[0].extend((1..=deepest).map(|n| n.to_string()));
    for run in drafts() {
        let by = &run.summary.acceptance_by_position;
        rows.push(line(which(run), &by.joint));
        let mut given = vec![String::new(); WHICH.len()];
        given[2] = "  given n-1".into();
        rows.push(line(given, &by.conditional));
    }
    format!("\nPasses that accept at least n drafts, and the same among those that accepted n-1:\n{}", align(&rows))
}

fn interval(run: &Run) -> String {
    let interval = run.summary.speedup_interval.filter(|_| run.draft.is_some());
    interval.map_or("-".into(), |[low, high]| format!("{low:.2}-{high:.2}"))
}

/// `same/of`, ties named; a dash where answers are sampled.
pub fn lossless(run: &Run) -> String {
    let lossless = &run.summary.lossless;
    match (lossless.of, lossless.ties) {
        (0, _) => "-".into(),
        (of, 0) => format!("{}/{of}", lossless.same),
        (of, 1) => format!("{}/{of}, 1 tie", lossless.same),
        (of, ties) => format!("{}/{of}, {ties} ties", lossless.same),
    }
}

/// A share of a draft's passes.
fn share(run: &Run, share: f64) -> String {
    if run.draft.is_some() { format!("{:.1}%", 100.0 * share) } else { "-".into() }
}

/// Rows of equally many cells as lines of equal columns.
fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = (0..columns)
            .map(|c| {
                if WORDS.contains(&c) {
                    format!("{:<w$}", row[c], w = widths[c])
                } else {
                    format!("{:>w$}", row[c], w = widths[c])
                }
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn columns_line_up_and_the_diagnosis_is_said() {
        let text = render(&report());
        let lines: Vec<&str> = text.lines().collect();
        let end = |line: &str, what: &str| line.find(what).unwrap() + what.len();
        assert_eq!(end(lines[1], "per pass"), end(lines[2], "0.000"));
        assert_eq!(end(lines[1], "lossless"), end(lines[3], "4/4"));
        assert!(!text.contains("score"));
        assert!(text.contains("pruned"));
    }

    #[test]
    fn everything_fits_100_columns() {
        let mut report = report();
        for run in &mut report.runs {
            run.benchmark = "humaneval".into();
            run.temperature = 0.7;
            run.name.clone_from(&"soft_ce (blind)".into());
            run.summary.score = Some(0.125);
            run.summary.tokens_per_second = 1234.5;
            run.summary.lossless = crate::metrics::Lossless { same: 79, of: 80, ties: 1 };
            run.summary.speedup_interval = Some([1.23, 4.56]);
            run.summary.acceptance_by_position.joint = vec![1.0; 12];
        }
        let text = render(&report);
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 100, "{widest}\n{text}");
    }

    #[test]
    fn acceptance_by_position_is_joint_and_conditional() {
        let mut report = report();
        let by = &mut report.runs[1].summary.acceptance_by_position;
        (by.joint, by.conditional) = (vec![0.5, 0.125], vec![0.5, 0.25]);
        let text = render(&report);
        let lines: Vec<&str> = text.lines().collect();
        let at = lines.iter().position(|line| line.starts_with("Passes that accept")).unwrap();
        assert!(lines[at + 2].ends_with("50.0%  12.5%"), "{text}");
        assert!(lines[at + 3].contains("given n-1") && lines[at + 3].ends_with("50.0%  25.0%"), "{text}");
    }

    #[test]
    fn ties_are_named() {
        let mut run = report().runs.remove(1);
        run.summary.lossless = crate::metrics::Lossless { same: 3, of: 4, ties: 1 };
        assert_eq!(lossless(&run), "3/4, 1 tie");
        run.summary.lossless = Default::default();
        assert_eq!(lossless(&run), "-");
    }
}
