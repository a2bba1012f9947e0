//! MT-Bench (Zheng et al., 2023), and the question files of EAGLE, which have its form.

use std::path::Path;

use serde::Deserialize;
use sightdraft_core::{Message, Result};

use crate::{Conversation, lines};

const WHAT: &str = "questions, one a line (`question_id`, `category`, `turns`)";

#[derive(Deserialize)]
struct Question {
    question_id: u64,
    #[serde(default)]
    category: String,
    turns: Vec<String>,
    #[serde(default)]
    reference: Vec<String>,
}

/// Reads question.jsonl. Each conversation holds the user's turns; the second is asked after the model's own first answer.
///
/// # Errors
/// A missing or malformed file, with the line.
pub fn read(path: &Path) -> Result<Vec<Conversation>> {
    lines::read::<Question>(path, WHAT)?
        .into_iter()
        .map(|(at, question)| {
            if question.turns.is_empty() {
                return Err(lines::fault(path, at, WHAT, "a question without turns"));
            }
            Ok(Conversation {
                id: question.question_id.to_string(),
                messages: question.turns.into_iter().map(Message::user).collect(),
                references: question.reference,
                category: (!question.category.is_empty()).then_some(question.category),
                ..Conversation::default()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_turns_and_a_broken_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("question.jsonl");
        let good = r#"{"question_id": 81, "category": "writing", "turns": ["one", "two"]}"#;
        std::fs::write(&path, good).unwrap();
        let all = read(&path).unwrap();
        assert_eq!(all[0].messages, [Message::user("one"), Message::user("two")]);
        assert_eq!(all[0].category.as_deref(), Some("writing"));
        std::fs::write(&path, format!("{good}\n{{\"question_id\": 82, \"turns\": []}}")).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("line 2"));
        std::fs::write(&path, "").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("empty"));
    }
}
