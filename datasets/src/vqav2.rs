//! VQAv2 (Goyal et al., 2017): questions and ten annotators' answers about COCO photos.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use sightdraft_core::{Error, Result, files};

use crate::Conversation;
use crate::conversation::image_file;

#[derive(Deserialize)]
struct Questions {
    data_subtype: String,
    questions: Vec<Question>,
}

#[derive(Deserialize)]
struct Question {
    question_id: u64,
    image_id: u64,
    question: String,
}

#[derive(Deserialize)]
struct Annotations {
    data_subtype: String,
    annotations: Vec<Annotation>,
}

#[derive(Deserialize)]
struct Annotation {
    question_id: u64,
    answer_type: Option<String>,
    answers: Vec<Answer>,
}

#[derive(Deserialize)]
struct Answer {
    answer: String,
}

/// Reads the questions JSON and, where the split has them, the annotations JSON; photos are looked up in `images` by their
/// COCO names, whose split comes from the file. The category is the answer's type (`yes/no`, `number`, `other`).
///
/// # Errors
/// Missing or malformed files, files of two different splits, a question without annotation, or a missing photo.
pub fn read(questions: &Path, annotations: Option<&Path>, images: &Path) -> Result<Vec<Conversation>> {
    let asked: Questions = files::read_json(questions)?;
    let mut answers = annotations.map(|path| read_annotations(path, &asked.data_subtype)).transpose()?;
    let one = |question: Question| {
        let name = coco_name(&asked.data_subtype, question.image_id);
        let image = image_file(images, &name, questions)?;
        let mut it = Conversation::about_image(question.question_id.to_string(), &question.question, image, Vec::new());
        if let (Some(answers), Some(path)) = (&mut answers, annotations) {
            let found = answers.remove(&question.question_id).ok_or_else(|| {
                Error::file(
                    path,
                    format!("answers to question {}", question.question_id),
                    "none",
                    "take questions and annotations of the same release",
                )
            })?;
            it.references = found.answers.into_iter().map(|a| a.answer).collect();
            it.category = found.answer_type;
        }
        Ok(it)
    };
    asked.questions.into_iter().map(one).collect()
}

fn read_annotations(path: &Path, split: &str) -> Result<HashMap<u64, Annotation>> {
    let file: Annotations = files::read_json(path)?;
    if file.data_subtype != split {
        return Err(Error::file(
            path,
            format!("annotations of {split}, as in the questions"),
            format!("annotations of {}", file.data_subtype),
            "take questions and annotations of the same split",
        ));
    }
    Ok(file.annotations.into_iter().map(|a| (a.question_id, a)).collect())
}

/// `COCO_val2014_000000000042.jpg`. `test-dev2015` asks about the photos of `test2015`.
fn coco_name(split: &str, image: u64) -> String {
    format!("COCO_{}_{image:012}.jpg", split.replace("-dev", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTIONS: &str = r#"{"data_subtype": "val2014", "license": {}, "questions":
        [{"image_id": 42, "question": "What colour?", "question_id": 42000}]}"#;
    const ANNOTATIONS: &str = r#"{"data_subtype": "val2014", "annotations": [{"question_id": 42000, "image_id": 42,
        "answer_type": "other", "answers": [{"answer": "red", "answer_id": 1}, {"answer": "dark red", "answer_id": 2}]}]}"#;

    #[test]
    fn joins_questions_answers_and_photos() {
        let dir = tempfile::tempdir().unwrap();
        let (q, a) = (dir.path().join("q.json"), dir.path().join("a.json"));
        std::fs::write(&q, QUESTIONS).unwrap();
        std::fs::write(&a, ANNOTATIONS).unwrap();
        let missing = read(&q, Some(&a), dir.path()).unwrap_err().to_string();
        assert!(missing.contains("COCO_val2014_000000000042.jpg"), "{missing}");
        std::fs::write(dir.path().join("COCO_val2014_000000000042.jpg"), "").unwrap();
        let all = read(&q, Some(&a), dir.path()).unwrap();
        assert_eq!(all[0].references, ["red", "dark red"]);
        assert_eq!((all[0].id.as_str(), all[0].category.as_deref()), ("42000", Some("other")));
        assert!(read(&q, None, dir.path()).unwrap()[0].references.is_empty());
        std::fs::write(&a, ANNOTATIONS.replace("val2014", "train2014")).unwrap();
        assert!(read(&q, Some(&a), dir.path()).unwrap_err().to_string().contains("same split"));
    }

    #[test]
    fn test_dev_uses_the_test_photos() {
        assert_eq!(coco_name("test-dev2015", 7), "COCO_test2015_000000000007.jpg");
    }
}
