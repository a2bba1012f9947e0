//! The `tokenizers` library behind the few calls that the project needs.

use std::ops::Range;
use std::path::{Path, PathBuf};

use tokenizers::decoders::DecoderWrapper;

use crate::{Error, Result, files};

/// A tokenizer.json.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    path: PathBuf,
    /// Whether the decoder joins `<0x..>` tokens into characters.
    byte_fallback: bool,
}

impl Tokenizer {
    /// Loads `tokenizer.json` of a model directory (or the file itself).
    ///
    /// # Errors
    /// A missing or unreadable file, or one that is no tokenizer.
    pub fn open(path: &Path) -> Result<Self> {
        let path = if path.is_dir() { path.join("tokenizer.json") } else { path.to_path_buf() };
        let bytes = files::read(&path)?;
        let mut inner = tokenizers::Tokenizer::from_bytes(&bytes).map_err(|e| {
            Error::file(&path, "a Hugging Face tokenizer.json", e.to_string(), "fetch the file again or convert it")
        })?;
        // Files written by a training run can carry its truncation and padding, which would silently change prompts.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| {
            Error::file(&path, "a tokenizer without truncation", e.to_string(), "remove `truncation` from the file")
        })?;
        let byte_fallback = inner.get_decoder().is_some_and(falls_back_to_bytes);
        Ok(Self { inner, path, byte_fallback })
    }

    /// Ids of `text`. `special` lets the post-processor add BOS/EOS. For the text of a chat template use
    /// [`Self::encode_prompt`], which never doubles the BOS.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        Ok(self.encoding(text, special)?.get_ids().to_vec())
    }

    /// Ids of a rendered prompt or conversation: the leading tokens (BOS) that the tokenizer adds, unless the text begins
    /// with a special token of its own (a doubled BOS is the classic fault), and never a trailing EOS.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.encode_prompt_with_spans(text)?.into_iter().map(|(id, _)| id).collect())
    }

    /// As [`Self::encode_prompt`], with the byte span of the text that each id came from. Added tokens have empty spans.
    pub fn encode_prompt_with_spans(&self, text: &str) -> Result<Vec<(u32, Range<usize>)>> {
        let plain = self.encode_with_spans(text, false)?;
        let encoding = self.encoding(text, true)?;
        let added = encoding.get_special_tokens_mask().iter().take_while(|&&mask| mask == 1).count();
        let prefix = &encoding.get_ids()[..added];
        // An image at the very start is content, not an opening.
        let opened = plain.first().is_some_and(|(id, _)| self.is_special(*id) && self.id("<image>") != Some(*id));
        let bos = if opened { &[] } else { prefix };
        Ok(bos.iter().map(|&id| (id, 0..0)).chain(plain).collect())
    }

    /// Ids with the byte span of the text that each came from. Bytes of one character that several ids spell may share
    /// that character's span.
    pub fn encode_with_spans(&self, text: &str, special: bool) -> Result<Vec<(u32, Range<usize>)>> {
        let encoding = self.encoding(text, special)?;
        Ok(encoding.get_ids().iter().zip(encoding.get_offsets()).map(|(&id, &(start, end))| (id, start..end)).collect())
    }

    /// The text of `ids`, special tokens left out.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, true).map_err(|e| self.fault("ids of this vocabulary", e))
    }

    /// The id of a token, if the vocabulary has it.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token of an id as the vocabulary spells it, if there is one.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Vocabulary size with added tokens.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// A stream that turns ids into text pieces whose concatenation equals [`Tokenizer::decode`] of them all.
    pub fn stream(&self) -> TokenStream<'_> {
        TokenStream { tokenizer: self, ids: Vec::new(), context: 0, read: 0, emitted: 0 }
    }

    fn encoding(&self, text: &str, special: bool) -> Result<tokenizers::Encoding> {
        self.inner.encode(text, special).map_err(|e| self.fault("text that this tokenizer can encode", e))
    }

    fn fault(&self, expected: &str, e: tokenizers::Error) -> Error {
        Error::file(&self.path, expected, e.to_string(), "check that the tokenizer belongs to the model")
    }

    fn is_special(&self, id: u32) -> bool {
        self.inner.get_added_tokens_decoder().get(&id).is_some_and(|token| token.special)
    }

    /// Whether `id` is one raw byte (`<0x0A>`) of a byte-fallback vocabulary.
    fn is_byte(&self, id: u32) -> bool {
        self.byte_fallback
            && self.inner.id_to_token(id).is_some_and(|t| t.len() == 6 && t.starts_with("<0x") && t.ends_with('>'))
    }
}

fn falls_back_to_bytes(decoder: &DecoderWrapper) -> bool {
    match decoder {
        DecoderWrapper::ByteFallback(_) => true,
        DecoderWrapper::Sequence(sequence) => sequence.get_decoders().iter().any(falls_back_to_bytes),
        _ => false,
    }
}

/// Incremental decoding: holds back what later ids can still change.
///
/// Three things can change: a character whose bytes are not all there; a run of byte-fallback tokens, which decodes to
/// characters only if the *whole* run is valid; and the first space of the text, which LLaMA-2 decoders strip. The last
/// is why pieces are differences of two decodings that share a context, never decodings of single ids.
pub struct TokenStream<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    /// Where the shared context starts: an index into `ids` at a character's edge.
    context: usize,
    /// How many ids are already text.
    read: usize,
    /// Bytes of text given out so far.
    emitted: usize,
}

impl TokenStream<'_> {
    /// Adds ids and returns the text that is now certain.
    pub fn push(&mut self, ids: &[u32]) -> Result<String> {
        self.ids.extend_from_slice(ids);
        let last = self.ids.iter().rev().find(|&&id| !self.tokenizer.is_special(id));
        if last.is_none_or(|&id| self.tokenizer.is_byte(id)) {
            return Ok(String::new());
        }
        let text = self.tokenizer.decode(&self.ids[self.context..])?;
        if text.ends_with('\u{FFFD}') {
            return Ok(String::new());
        }
        let before = self.tokenizer.decode(&self.ids[self.context..self.read])?;
        let Some(piece) = text.strip_prefix(before.as_str()).map(str::to_owned) else {
            return Ok(String::new());
        };
        // A context of mere spaces would lose them to the decoder's strip a second time, so it waits for a word.
        if !piece.trim().is_empty() {
            self.context = self.read;
        }
        self.read = self.ids.len();
        self.emitted += piece.len();
        Ok(piece)
    }

    /// The rest, at the end.
    pub fn finish(self) -> Result<String> {
        let whole = self.tokenizer.decode(&self.ids)?;
        Ok(whole.get(self.emitted..).unwrap_or_default().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;
    use crate::files;
    use sightdraft_fixtures::root;

    #[derive(Deserialize)]
    struct Case {
        text: String,
        ids: Vec<u32>,
        ids_no_special: Vec<u32>,
        offsets: Vec<(usize, usize)>,
        decode_skip: String,
    }

    fn open(name: &str) -> Tokenizer {
        Tokenizer::open(&root().join("text").join(format!("tokenizer_{name}.json"))).unwrap()
    }

    fn cases() -> Vec<(Tokenizer, Vec<Case>)> {
        let all: std::collections::BTreeMap<String, Vec<Case>> =
            files::read_json(&root().join("text").join("encodings.json")).unwrap();
        assert!(!all.is_empty());
        all.into_iter().map(|(name, cases)| (open(&name), cases)).collect()
    }

    /// One push per chunk of `step` ids.
    fn streamed(tokenizer: &Tokenizer, ids: &[u32], step: usize) -> String {
        let mut stream = tokenizer.stream();
        let mut text: String = ids.chunks(step).map(|chunk| stream.push(chunk).unwrap()).collect();
        text += &stream.finish().unwrap();
        text
    }

    #[test]
    fn fixture_encodings() {
        for (tokenizer, cases) in cases() {
            for case in cases {
                assert_eq!(tokenizer.encode(&case.text, true).unwrap(), case.ids, "{:?}", case.text);
                let spans = tokenizer.encode_with_spans(&case.text, false).unwrap();
                assert_eq!(spans.iter().map(|s| s.0).collect::<Vec<_>>(), case.ids_no_special, "{:?}", case.text);
                assert_eq!(tokenizer.decode(&case.ids).unwrap(), case.decode_skip, "{:?}", case.text);
                for ((_, span), chars) in spans.iter().zip(&case.offsets) {
                    let expected = bytes_of_chars(&case.text, *chars);
                    assert!(expected.start <= span.start && span.end <= expected.end, "{:?} {span:?}", case.text);
                }
            }
        }
    }

    /// The fixture counts characters.
    fn bytes_of_chars(text: &str, (start, end): (usize, usize)) -> Range<usize> {
        let byte = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
        byte(start)..byte(end)
    }

    #[test]
    fn fixture_streams_equal_the_whole() {
        for (tokenizer, cases) in cases() {
            for case in cases {
                for step in 1..=5 {
                    assert_eq!(streamed(&tokenizer, &case.ids, step), case.decode_skip, "{:?} by {step}", case.text);
                }
            }
        }
    }

    #[test]
    fn fixture_text_arrives_before_the_end() {
        for (tokenizer, cases) in cases() {
            let case = cases.iter().find(|c| c.text == "Hello world").unwrap();
            let mut stream = tokenizer.stream();
            let pieces: Vec<String> = case.ids.iter().map(|&id| stream.push(&[id]).unwrap()).collect();
            assert!(pieces.iter().filter(|p| !p.is_empty()).count() >= 4, "{pieces:?}");
            assert_eq!(stream.finish().unwrap(), "");
        }
    }

    #[test]
    fn a_bos_is_never_doubled() {
        let tokenizer = open("llama2_like");
        for text in ["<s>Hello", "Hello", "<image>\nHello"] {
            let ids = tokenizer.encode_prompt(text).unwrap();
            assert_eq!(ids.iter().filter(|&&id| id == 1).count(), 1, "{text}");
            assert_eq!(ids[0], 1);
        }
        let spans = tokenizer.encode_prompt_with_spans("Hello").unwrap();
        assert_eq!((spans[0].1.clone(), spans.last().unwrap().1.end), (0..0, 5));
    }

    #[test]
    fn a_wrong_file_is_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tokenizer.json"), "{}").unwrap();
        let message = Tokenizer::open(dir.path()).err().unwrap().to_string();
        assert!(message.contains("tokenizer.json") && message.contains("expected"), "{message}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Any ids at all, broken characters and specials included, in any chunks.
        #[test]
        fn any_ids_stream_to_the_whole(ids in prop::collection::vec(0u32..600, 0..40), step in 1usize..6) {
            for name in ["llama2_like", "llama3_like"] {
                let tokenizer = open(name);
                prop_assert_eq!(streamed(&tokenizer, &ids, step), tokenizer.decode(&ids).unwrap());
            }
        }

        /// Byte-fallback tokens (3..259) mixed with words and spaces.
        #[test]
        fn byte_runs_stream_to_the_whole(ids in prop::collection::vec(prop_oneof![1u32..6, 150u32..262, 340u32..360], 0..30)) {
            let tokenizer = open("llama2_like");
            prop_assert_eq!(streamed(&tokenizer, &ids, 1), tokenizer.decode(&ids).unwrap());
        }
    }
}
