//! Conversations in ShareGPT's form, or in the form of chat messages.

use std::path::Path;

use serde::Deserialize;
use sightdraft_core::{Message, Result, Role};

use crate::{Conversation, lines};

const WHAT: &str = "conversations, one a line (`conversations` of `from`/`value`, or `messages` of `role`/`content`)";

#[derive(Deserialize)]
struct Line {
    id: Option<String>,
    #[serde(alias = "messages")]
    conversations: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    #[serde(alias = "role")]
    from: String,
    #[serde(alias = "content")]
    value: String,
}

/// Reads a JSON-lines file of conversations; other keys (`source`) are allowed.
///
/// # Errors
/// A missing or malformed file, or an unknown speaker, with the line.
pub fn read(path: &Path) -> Result<Vec<Conversation>> {
    lines::read::<Line>(path, WHAT)?
        .into_iter()
        .map(|(at, line)| {
            let messages = line.conversations.into_iter().map(|turn| {
                let role = role(&turn.from)
                    .ok_or_else(|| lines::fault(path, at, WHAT, format!("the unknown speaker `{}`", turn.from)))?;
                Ok(Message { role, content: turn.value })
            });
            let messages = messages.collect::<Result<_>>()?;
            Ok(Conversation { id: line.id.unwrap_or_else(|| at.to_string()), messages, ..Conversation::default() })
        })
        .collect()
}

fn role(from: &str) -> Option<Role> {
    match from {
        "system" => Some(Role::System),
        "human" | "user" => Some(Role::User),
        "gpt" | "chatgpt" | "bard" | "bing" | "assistant" | "model" => Some(Role::Assistant),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_and_a_stranger() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(
            &path,
            "{\"conversations\": [{\"from\": \"human\", \"value\": \"hi\"}, {\"from\": \"gpt\", \"value\": \"ho\"}]}\n\
             {\"id\": \"x\", \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"source\": \"s\"}\n",
        )
        .unwrap();
        let all = read(&path).unwrap();
        assert_eq!(all[0].messages, [Message::user("hi"), Message::assistant("ho")]);
        assert_eq!((all[0].id.as_str(), all[1].id.as_str()), ("1", "x"));
        std::fs::write(&path, r#"{"conversations": [{"from": "tool", "value": "hi"}]}"#).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("`tool`"));
    }
}
