//! HumanEval (Chen et al., 2021): Python functions to complete, with unit tests.

use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use serde::Deserialize;
use sightdraft_core::{Error, Message, Result, files};

use crate::{CodeTest, Conversation, lines, prompts};

const WHAT: &str = "HumanEval problems, one a line (`task_id`, `prompt`, `entry_point`, `test`)";

#[derive(Deserialize)]
struct Problem {
    task_id: String,
    prompt: String,
    entry_point: String,
    canonical_solution: Option<String>,
    test: String,
}

/// Reads HumanEval.jsonl.gz (or the same file unpacked).
///
/// # Errors
/// A missing, truncated or malformed file.
pub fn read(path: &Path) -> Result<Vec<Conversation>> {
    let bytes = files::read(path)?;
    let mut text = String::new();
    let unpacked = if bytes.starts_with(&[0x1f, 0x8b]) {
        GzDecoder::new(&bytes[..]).read_to_string(&mut text)
    } else {
        bytes.as_slice().read_to_string(&mut text)
    };
    unpacked.map_err(|e| Error::file(path, "a whole .jsonl.gz", e.to_string(), "fetch the file again"))?;
    let problems = lines::parse::<Problem>(path, &text, WHAT)?;
    Ok(problems.into_iter().map(|(_, problem)| conversation(problem)).collect())
}

fn conversation(problem: Problem) -> Conversation {
    Conversation {
        id: problem.task_id,
        messages: vec![Message::user(format!("{}{}", prompts::HUMANEVAL, problem.prompt))],
        references: problem.canonical_solution.into_iter().collect(),
        code: Some(CodeTest { prompt: problem.prompt, test: problem.test, entry_point: problem.entry_point }),
        ..Conversation::default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn packed_and_truncated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("HumanEval.jsonl.gz");
        let line = r#"{"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f", "canonical_solution": "    return 1\n", "test": "def check(c): assert c() == 1"}"#;
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(line.as_bytes()).unwrap();
        let packed = packer.finish().unwrap();
        std::fs::write(&path, &packed).unwrap();
        let all = read(&path).unwrap();
        assert_eq!(all[0].messages[0].content, "Complete the code I provided.\ndef f():\n");
        assert_eq!(all[0].code.as_ref().unwrap().entry_point, "f");
        std::fs::write(&path, &packed[..packed.len() - 12]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("fetch the file again"));
    }
}
