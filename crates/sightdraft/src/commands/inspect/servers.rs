//! Which servers load a draft, in words.

use sightdraft_draft::export::Verdict;

/// One line per server.
pub fn lines(verdicts: &[Verdict]) -> String {
    verdicts.iter().map(|verdict| format!("  {:<12}{}\n", verdict.server.to_string(), sentence(verdict))).collect()
}

fn sentence(verdict: &Verdict) -> String {
    if verdict.loads {
        return "loads it".into();
    }
    let mend = match verdict.exportable {
        true => format!("; `sightdraft export --format {}` mends that", verdict.server.name()),
        false => String::new(),
    };
    format!("does not load it: {}{mend}", verdict.reasons.join("; "))
}
