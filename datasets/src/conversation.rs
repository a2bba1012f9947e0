//! What every reader gives: a conversation with images and what to score its answer against.

use std::path::{Path, PathBuf};

use image::RgbImage;
use sightdraft_core::{Error, Message, Result};

/// Where an image comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum ImageSource {
    /// A file, not opened yet.
    File(PathBuf),
    /// Pixels that this program drew.
    Drawn(RgbImage),
}

/// The unit test of a code problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeTest {
    /// The code that the answer goes on from.
    pub prompt: String,
    /// Python that defines `check(candidate)`.
    pub test: String,
    /// The function to check.
    pub entry_point: String,
}

/// One example: turns, images, and references where the file has them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conversation {
    /// Unique within its file.
    pub id: String,
    /// The turns. Benchmarks hold the user's turns alone: each is asked after the model answered the one before. `<image>`
    /// stands where an image of `images` goes, in order.
    pub messages: Vec<Message>,
    /// The images, in the order of their `<image>`s.
    pub images: Vec<ImageSource>,
    /// Right answers: ten annotators' for VQAv2, one for ChartQA and GSM8K.
    pub references: Vec<String>,
    /// The file's own grouping: `human`, `writing`.
    pub category: Option<String>,
    /// The ids of the last assistant turn as the target generated them, EOS included: text cannot always be encoded back to
    /// the same ids.
    pub answer_ids: Option<Vec<u32>>,
    /// The unit test, for code.
    pub code: Option<CodeTest>,
}

impl Conversation {
    /// A question to the model, behind one image.
    pub(crate) fn about_image(id: String, question: &str, image: ImageSource, references: Vec<String>) -> Self {
        let messages = vec![Message::user(format!("<image>\n{question}"))];
        Self { id, messages, images: vec![image], references, ..Self::default() }
    }
}

/// The image `name` in `folder`, which must exist; `named_by` is the file that asks for it.
pub(crate) fn image_file(folder: &Path, name: &str, named_by: &Path) -> Result<ImageSource> {
    let path = folder.join(name);
    if path.is_file() {
        return Ok(ImageSource::File(path));
    }
    Err(Error::file(
        &path,
        format!("an image that {} names", named_by.display()),
        "no file",
        "download the images of this data set, or give the folder that holds them",
    ))
}
