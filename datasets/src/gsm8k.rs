//! GSM8K (Cobbe et al., 2021): grade-school mathematics with worked answers.

use std::path::Path;

use serde::Deserialize;
use sightdraft_core::{Message, Result};

use crate::{Conversation, lines};

const WHAT: &str = "GSM8K problems, one a line (`question`, `answer` ending in `#### number`)";

#[derive(Deserialize)]
struct Problem {
    question: String,
    answer: String,
}

/// Reads train.jsonl or test.jsonl; the reference is the number behind `####`, thousands separators removed.
///
/// # Errors
/// A missing or malformed file, with the line.
pub fn read(path: &Path) -> Result<Vec<Conversation>> {
    lines::read::<Problem>(path, WHAT)?
        .into_iter()
        .map(|(at, problem)| {
            let (_, number) = problem
                .answer
                .rsplit_once("####")
                .ok_or_else(|| lines::fault(path, at, WHAT, "an answer without `####`"))?;
            Ok(Conversation {
                id: at.to_string(),
                messages: vec![Message::user(problem.question)],
                references: vec![number.trim().replace(',', "")],
                ..Conversation::default()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_and_a_missing_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("test.jsonl");
        std::fs::write(&path, r#"{"question": "Q", "answer": "1+1=<<1+1=2>>2\n#### 1,234"}"#).unwrap();
        assert_eq!(read(&path).unwrap()[0].references, ["1234"]);
        std::fs::write(&path, r#"{"question": "Q", "answer": "2"}"#).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("line 1"));
    }
}
