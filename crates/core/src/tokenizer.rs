//! The `tokenizers` library behind the few calls that the project needs.

use std::path::Path;

use crate::Result;

/// A tokenizer.json.
pub struct Tokenizer {}

impl Tokenizer {
    /// Loads `tokenizer.json` of a model directory (or the file itself).
    pub fn open(_path: &Path) -> Result<Self> {
        todo!()
    }

    /// Ids of `text`. `special` lets the post-processor add BOS/EOS; a rendered chat template already has them, so pass
    /// false there (a doubled BOS is the classic fault).
    pub fn encode(&self, _text: &str, _special: bool) -> Result<Vec<u32>> {
        todo!()
    }

    /// Ids with the byte span of the text each came from.
    pub fn encode_with_spans(&self, _text: &str, _special: bool) -> Result<Vec<(u32, std::ops::Range<usize>)>> {
        todo!()
    }

    /// The text of `ids`, special tokens left out.
    pub fn decode(&self, _ids: &[u32]) -> Result<String> {
        todo!()
    }

    /// The id of a token, if the vocabulary has it.
    pub fn id(&self, _token: &str) -> Option<u32> {
        todo!()
    }

    /// Vocabulary size with added tokens.
    pub fn vocab_size(&self) -> usize {
        todo!()
    }

    /// A stream that turns ids into text pieces whose concatenation equals [`Tokenizer::decode`] of them all.
    pub fn stream(&self) -> TokenStream<'_> {
        TokenStream { tokenizer: self, ids: Vec::new(), emitted: 0 }
    }
}

/// Incremental decoding: holds back bytes of unfinished characters.
pub struct TokenStream<'a> {
    #[allow(dead_code)]
    tokenizer: &'a Tokenizer,
    #[allow(dead_code)]
    ids: Vec<u32>,
    #[allow(dead_code)]
    emitted: usize,
}

impl TokenStream<'_> {
    /// Adds ids and returns the text that is now certain.
    pub fn push(&mut self, _ids: &[u32]) -> Result<String> {
        todo!()
    }

    /// The rest, at the end.
    pub fn finish(self) -> Result<String> {
        todo!()
    }
}
