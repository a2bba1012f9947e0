//! ChartQA (Masry et al., 2022): questions about charts, written by people or made by a model.

use std::path::Path;

use serde::Deserialize;
use sightdraft_core::{Error, Message, Result, files};

use crate::conversation::image_file;
use crate::prompts::Preset;
use crate::{Conversation, lines};

const WHAT: &str = "ChartQA questions (`imgname`, `query`, `label`)";
const WHAT_LINES: &str = "chart questions, one a line (`image`, `question`, `answer`)";

/// An entry of the official JSON.
#[derive(Deserialize)]
struct Official {
    imgname: String,
    query: String,
    label: Label,
}

/// Numbers are not always quoted.
#[derive(Deserialize)]
#[serde(untagged)]
enum Label {
    Text(String),
    Number(serde_json::Number),
}

/// A line of the re-packaged form, its image relative to the file.
#[derive(Deserialize)]
struct Line {
    image: String,
    question: String,
    answer: String,
    rationale: Option<String>,
}

/// Reads one split folder of the official release (`<split>_human.json`, `<split>_augmented.json`, `png/`), one of its JSON
/// files, or a `.jsonl` of `image`, `question`, `answer`. The category is `human` or `augmented`.
///
/// # Errors
/// Missing or malformed files, or a missing chart.
pub fn read(path: &Path) -> Result<Vec<Conversation>> {
    if path.is_dir() {
        let split = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut all = official(&path.join(format!("{split}_human.json")), "human")?;
        all.extend(official(&path.join(format!("{split}_augmented.json")), "augmented")?);
        return Ok(all);
    }
    if of_lines(path) {
        return Ok(from_lines(path)?.into_iter().map(|(conversation, _)| conversation).collect());
    }
    let category = if path.to_string_lossy().contains("augmented") { "augmented" } else { "human" };
    official(path, category)
}

/// The questions of [`read`] as conversations to train on: each asks for a long answer as MSD does, and where a line has a
/// `rationale`, that is the answer.
///
/// # Errors
/// As [`read`].
pub fn lessons(path: &Path) -> Result<Vec<Conversation>> {
    let suffix = Preset::Msd.suffix("chartqa")?;
    let all = match of_lines(path) {
        true => from_lines(path)?,
        false => read(path)?.into_iter().map(|conversation| (conversation, None)).collect(),
    };
    let lesson = |(mut conversation, rationale): (Conversation, Option<String>)| {
        conversation.messages.iter_mut().for_each(|message| message.content += suffix);
        conversation.messages.extend(rationale.map(|text| Message::assistant(text.trim())));
        conversation
    };
    Ok(all.into_iter().map(lesson).collect())
}

fn of_lines(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jsonl")
}

fn official(path: &Path, category: &str) -> Result<Vec<Conversation>> {
    let entries: Vec<Official> = files::read_json(path)?;
    if entries.is_empty() {
        return Err(Error::file(path, WHAT, "an empty list", "fetch the file again"));
    }
    let folder = path.with_file_name("png");
    let question = |(at, entry): (usize, Official)| {
        let answer = match entry.label {
            Label::Text(text) => text,
            Label::Number(number) => number.to_string(),
        };
        let image = image_file(&folder, &entry.imgname, path)?;
        let mut it = Conversation::about_image(format!("{category}/{at}"), &entry.query, image, vec![answer]);
        it.category = Some(category.to_owned());
        Ok(it)
    };
    entries.into_iter().enumerate().map(question).collect()
}

/// The questions of a `.jsonl`, with their rationales.
fn from_lines(path: &Path) -> Result<Vec<(Conversation, Option<String>)>> {
    let folder = path.parent().unwrap_or(Path::new("."));
    lines::read::<Line>(path, WHAT_LINES)?
        .into_iter()
        .map(|(at, line)| {
            let image = image_file(folder, &line.image, path)?;
            let it = Conversation::about_image(at.to_string(), &line.question, image, vec![line.answer]);
            Ok((it, line.rationale))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_and_the_charts() {
        let dir = tempfile::tempdir().unwrap();
        let test = dir.path().join("test");
        std::fs::create_dir_all(test.join("png")).unwrap();
        std::fs::write(test.join("png/1.png"), "").unwrap();
        let entry = |label: &str| format!(r#"[{{"imgname": "1.png", "query": "How many?", "label": {label}}}]"#);
        std::fs::write(test.join("test_human.json"), entry("\"5%\"")).unwrap();
        std::fs::write(test.join("test_augmented.json"), entry("12.50")).unwrap();
        let all = read(&test).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].references[0].as_str(), all[0].category.as_deref()), ("5%", Some("human")));
        assert_eq!(all[1].category.as_deref(), Some("augmented"));
        assert_eq!(all[0].messages[0].content, "<image>\nHow many?");
        std::fs::remove_file(test.join("png/1.png")).unwrap();
        let message = read(&test).unwrap_err().to_string();
        assert!(message.contains("1.png") && message.contains("test_human.json"), "{message}");
    }

    #[test]
    fn lines_name_the_broken_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("qa.jsonl");
        std::fs::write(dir.path().join("a.png"), "").unwrap();
        let good = r#"{"image": "a.png", "question": "Q", "answer": "A", "rationale": "because"}"#;
        std::fs::write(&path, format!("{good}\n\n{{\"image\": \"a.png\"}}\n")).unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("line 3") && message.contains("question"), "{message}");
        std::fs::write(&path, good).unwrap();
        let read = read(&path).unwrap();
        assert_eq!((&read[0].references[..], read[0].messages.len()), (&["A".to_owned()][..], 1));
        let lesson = &lessons(&path).unwrap()[0];
        assert_eq!(lesson.messages[1], Message::assistant("because"));
        assert!(lesson.messages[0].content.ends_with("explanation of your reasoning leading to the answer."));
    }
}
