//! Conversations about charts as ids and pixels.

use std::path::Path;

use sightdraft_core::chat::assistant_mask;
use sightdraft_core::{ChatTemplate, Error, Result, Tokenizer};
use sightdraft_datasets::{Conversation, ImageSource, chartqa};
use sightdraft_vision::{Image, Pixels, Preprocessor};

/// A conversation: one image token, and the answer at the end.
pub struct Lesson {
    /// Ids up to the end of the answer.
    pub ids: Vec<u32>,
    /// How many of the last ids are the answer.
    pub answer: usize,
    picture: ImageSource,
}

/// Reads conversations as the finished model will.
pub struct Reader {
    tokenizer: Tokenizer,
    chat: ChatTemplate,
    preprocessor: Preprocessor,
    answer_tokens: usize,
}

impl Reader {
    /// With the tokenizer and the chat template of `dir`; answers are cut after `answer_tokens`.
    ///
    /// # Errors
    /// A file that is missing or malformed.
    pub fn open(dir: &Path, preprocessor: Preprocessor, answer_tokens: usize) -> Result<Self> {
        Ok(Self { tokenizer: Tokenizer::open(dir)?, chat: ChatTemplate::open(dir)?, preprocessor, answer_tokens })
    }

    /// The conversations of a file of questions with rationales, in its order.
    ///
    /// # Errors
    /// A file that is missing or malformed, or a question without a rationale.
    pub fn read(&self, path: &Path) -> Result<Vec<Lesson>> {
        let lesson = |conversation| self.lesson(conversation).map_err(|fault| in_file(path, fault));
        chartqa::lessons(path)?.into_iter().map(lesson).collect()
    }

    fn lesson(&self, mut conversation: Conversation) -> Result<Lesson> {
        let (mut ids, said) = assistant_mask(&self.tokenizer, &self.chat.conversation(&conversation.messages)?)?;
        let said: Vec<usize> = (0..ids.len()).filter(|at| said[*at]).take(self.answer_tokens).collect();
        ids.truncate(said.last().map_or(0, |last| last + 1));
        Ok(Lesson { ids, answer: said.len(), picture: conversation.images.remove(0) })
    }

    /// The pixels of a lesson's picture.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn pixels(&self, lesson: &Lesson) -> Result<Pixels> {
        let image = match &lesson.picture {
            ImageSource::File(path) => Image::open(path)?,
            ImageSource::Drawn(drawn) => {
                Image::from_rgb(drawn.width() as usize, drawn.height() as usize, drawn.as_raw().clone())?
            }
        };
        Ok(self.preprocessor.apply(&image))
    }
}

fn in_file(path: &Path, fault: Error) -> Error {
    Error::file(path, "questions about an image with a `rationale` each", fault.to_string(), "mend or remove that line")
}
