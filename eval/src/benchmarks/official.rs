//! Benchmarks read from their official files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use sightdraft_core::{Error, Result, Role};
use sightdraft_datasets::prompts::{HUMANEVAL, Preset};
use sightdraft_datasets::{CodeTest, Conversation, ImageSource, chartqa, gsm8k, humaneval, mt_bench, vqav2};
use sightdraft_vision::Image;

use crate::benchmark::Picture;
use crate::scoring::{Python, last_number, relaxed, vqa};
use crate::{Benchmark, Item};

/// Most tokens of an answer to a text question, as EAGLE measures.
const TEXT_TOKENS: usize = 1024;

/// How the answer to an item is judged.
type Score = Box<dyn Fn(&Item, &str) -> Option<f64>>;

/// A benchmark of files.
pub struct Official {
    name: &'static str,
    instruction: String,
    items: Vec<Item>,
    max_new_tokens: usize,
    score: Score,
}

impl Official {
    /// MT-Bench: `path` is question.jsonl. Judged by people or models only, so without a score.
    pub fn mt_bench(path: &Path) -> Result<Self> {
        Ok(Self::text("mt_bench", "{question}", mt_bench::read(path)?, Box::new(|_, _| None)))
    }

    /// GSM8K: `path` is test.jsonl; the last number counts.
    pub fn gsm8k(path: &Path) -> Result<Self> {
        Ok(Self::text("gsm8k", "{question}", gsm8k::read(path)?, any_reference(last_number::is_right)))
    }

    /// HumanEval: `path` is HumanEval.jsonl.gz. Scoring (pass@1) runs what the model wrote, so it needs a `python` to run it
    /// with; without one there are no scores.
    pub fn humaneval(path: &Path, python: Option<Python>) -> Result<Self> {
        let problems = humaneval::read(path)?;
        let test = |problem: &Conversation| Some((problem.id.clone(), problem.code.clone()?));
        let tests: HashMap<String, CodeTest> = problems.iter().filter_map(test).collect();
        let score = move |item: &Item, answer: &str| {
            let passed = python.as_ref()?.passes(tests.get(&item.id)?, answer);
            Some(f64::from(u8::from(passed)))
        };
        Ok(Self::text("humaneval", &format!("{HUMANEVAL}{{question}}"), problems, Box::new(score)))
    }

    /// ChartQA: `path` is a split's folder or one of its files.
    pub fn chartqa(path: &Path, preset: Preset) -> Result<Self> {
        Self::visual("chartqa", preset, chartqa::read(path)?, any_reference(relaxed::is_right))
    }

    /// VQAv2: `path` is a folder with one `*questions.json`, at most one `*annotations.json`, and the photos.
    pub fn vqav2(path: &Path, preset: Preset) -> Result<Self> {
        let questions = ending(path, "questions.json")?
            .ok_or_else(|| Error::file(path, "a *questions.json of VQAv2", "none", "unpack the questions there"))?;
        let annotations = ending(path, "annotations.json")?;
        let conversations = vqav2::read(&questions, annotations.as_deref(), path)?;
        let score =
            |item: &Item, answer: &str| (!item.references.is_empty()).then(|| vqa::accuracy(answer, &item.references));
        Self::visual("vqav2", preset, conversations, Box::new(score))
    }

    fn text(name: &'static str, instruction: &str, conversations: Vec<Conversation>, score: Score) -> Self {
        let items = conversations.into_iter().map(|c| item(c, "")).collect();
        Self { name, instruction: instruction.into(), items, max_new_tokens: TEXT_TOKENS, score }
    }

    fn visual(name: &'static str, preset: Preset, conversations: Vec<Conversation>, score: Score) -> Result<Self> {
        let suffix = preset.suffix(name)?;
        // A long explanation is for timing: the rules judge short answers only.
        let score = if preset == Preset::Official { score } else { Box::new(|_: &Item, _: &str| None) };
        Ok(Self {
            name,
            instruction: format!("<image>\n{{question}}{suffix}"),
            items: conversations.into_iter().map(|c| item(c, suffix)).collect(),
            max_new_tokens: preset.max_new(name),
            score,
        })
    }
}

/// 1 if the answer is right by any of the references.
fn any_reference(is_right: fn(&str, &str) -> bool) -> Score {
    Box::new(move |item, answer| {
        Some(f64::from(u8::from(item.references.iter().any(|reference| is_right(answer, reference)))))
    })
}

/// The one file in `dir` whose name ends so.
fn ending(dir: &Path, end: &str) -> Result<Option<PathBuf>> {
    let entries = std::fs::read_dir(dir).map_err(|e| Error::io("read", dir, e))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(end)))
        .collect();
    files.sort();
    match files.len() {
        0 | 1 => Ok(files.pop()),
        n => Err(Error::file(dir, format!("one file *{end}"), n.to_string(), "keep one split in the folder")),
    }
}

fn item(conversation: Conversation, suffix: &str) -> Item {
    let user = conversation.messages.into_iter().filter(|message| message.role == Role::User);
    Item {
        id: conversation.id,
        category: conversation.category,
        turns: user.map(|message| format!("{}{suffix}", message.content)).collect(),
        pictures: conversation.images.into_iter().map(picture).collect(),
        references: conversation.references,
    }
}

fn picture(source: ImageSource) -> Picture {
    match source {
        ImageSource::File(path) => Picture::File(path),
        ImageSource::Drawn(drawn) => Picture::Drawn(Image {
            width: drawn.width() as usize,
            height: drawn.height() as usize,
            rgb: drawn.into_raw(),
        }),
    }
}

impl Benchmark for Official {
    fn name(&self) -> &str {
        self.name
    }

    fn instruction(&self) -> &str {
        &self.instruction
    }

    fn items(&self) -> &[Item] {
        &self.items
    }

    fn max_new_tokens(&self) -> usize {
        self.max_new_tokens
    }

    fn score(&self, item: &Item, answers: &[String]) -> Option<f64> {
        (self.score)(item, answers.last()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn gsm8k_scores_the_last_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir, "test.jsonl", r#"{"question": "How many?", "answer": "So.\n#### 1,080"}"#);
        let gsm8k = Official::gsm8k(&path).unwrap();
        let item = &gsm8k.items()[0];
        assert_eq!(item.turns, ["How many?"]);
        assert_eq!(gsm8k.score(item, &["It is 1,080.".into()]), Some(1.0));
        assert_eq!(gsm8k.score(item, &["It is 1,081.".into()]), Some(0.0));
        assert!(!gsm8k.has_pictures());
    }

    #[test]
    fn mt_bench_has_two_turns_and_no_score() {
        let dir = tempfile::tempdir().unwrap();
        let line = r#"{"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]}"#;
        let mt_bench = Official::mt_bench(&file(&dir, "question.jsonl", line)).unwrap();
        let item = &mt_bench.items()[0];
        assert_eq!(item.turns, ["Write.", "Again."]);
        assert_eq!(mt_bench.score(item, &["a".into(), "b".into()]), None);
    }

    #[test]
    fn humaneval_is_scored_only_where_code_may_run() {
        let dir = tempfile::tempdir().unwrap();
        let line = r#"{"task_id": "HumanEval/0", "prompt": "def f():\n    'One.'\n", "entry_point": "f", "test": "def check(c): assert c() == 1"}"#;
        let path = file(&dir, "HumanEval.jsonl", line);
        let answers = ["```python\ndef f():\n    return 1\n```".to_string()];
        let timed = Official::humaneval(&path, None).unwrap();
        assert_eq!(timed.score(&timed.items()[0], &answers), None);
        let Ok(python) = Python::find() else { return println!("skipped: no python3 here") };
        let scored = Official::humaneval(&path, Some(python)).unwrap();
        assert_eq!(scored.score(&scored.items()[0], &answers), Some(1.0));
        assert_eq!(scored.score(&scored.items()[0], &["    return 2".into()]), Some(0.0));
    }

    #[test]
    fn chartqa_asks_for_a_word_to_score_and_for_more_to_time() {
        let dir = tempfile::tempdir().unwrap();
        file(&dir, "a.png", "");
        let line = r#"{"image": "a.png", "question": "How much?", "answer": "5%"}"#;
        let path = file(&dir, "charts.jsonl", line);
        let scored = Official::chartqa(&path, Preset::Official).unwrap();
        assert_eq!(scored.items()[0].turns[0], "<image>\nHow much?\nAnswer the question with a single word.");
        assert_eq!(scored.score(&scored.items()[0], &["0.05".into()]), Some(1.0));
        assert_eq!(scored.score(&scored.items()[0], &["5".into()]), Some(0.0));
        let timed = Official::chartqa(&path, Preset::Msd).unwrap();
        assert_eq!(timed.score(&timed.items()[0], &["0.05".into()]), None);
        assert_eq!(timed.max_new_tokens(), 512);
        assert!(timed.has_pictures());
    }

    #[test]
    fn a_folder_without_questions_is_a_clear_error() {
        let dir = tempfile::tempdir().unwrap();
        let message = Official::vqav2(dir.path(), Preset::Official).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("questions.json"), "{message}");
    }
}
