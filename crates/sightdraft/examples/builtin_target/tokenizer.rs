//! A byte-level BPE learnt from what charts are asked and answered.

use std::path::Path;

use sightdraft_core::{Error, Result};
use sightdraft_datasets::charts::{Chart, Split};
use tokenizers::decoders::byte_level::ByteLevel as Decoder;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split as Splitter, SplitPattern};
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::tokenizer::SplitDelimiterBehavior;
use tokenizers::{AddedToken, Tokenizer};

/// Special tokens; their ids are their places.
pub const SPECIAL: [&str; 4] = ["<pad>", "<s>", "</s>", "<image>"];
/// Fills up batches.
pub const PAD: u32 = 0;
/// Begin of the conversation.
pub const BOS: u32 = 1;
/// End of an answer.
pub const EOS: u32 = 2;
/// Stands for an image in the prompt.
pub const IMAGE: u32 = 3;

/// Words with the space before them, single digits, marks: one digit a token, so that a model learns ten of them and not
/// ninety numbers.
const PIECES: &str = r" ?\p{L}+| ?\d|\s+|[^\s\p{L}\d]+";
/// Charts whose words are counted.
const CHARTS: u64 = 6000;
/// At most this many tokens; every word of the charts fits.
const VOCABULARY: usize = 1024;

/// Learns the tokenizer of the chart set `seed` and writes `tokenizer.json` and `tokenizer_config.json` to `dir`.
///
/// # Errors
/// What the tokenizers library refuses, or the disk.
pub fn train(seed: u64, dir: &Path) -> Result<()> {
    let path = dir.join("tokenizer.json");
    let fault = |e: tokenizers::Error| {
        Error::invalid("tokenizer training", "a byte-level BPE", e.to_string(), "report this as a bug")
    };
    let mut tokenizer = learn(seed).map_err(fault)?;
    tokenizer.with_decoder(Some(Decoder::default()));
    let bos = TemplateProcessing::builder()
        .try_single("<s> $A")
        .and_then(|builder| builder.special_tokens(vec![("<s>", BOS)]).build().map_err(|e| e.to_string()))
        .map_err(|e| fault(e.into()))?;
    tokenizer.with_post_processor(Some(bos));
    tokenizer.save(&path, false).map_err(fault)?;
    let config = serde_json::json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "image_token": "<image>",
        "add_bos_token": true,
        "add_eos_token": false,
        "clean_up_tokenization_spaces": false,
        "model_max_length": 512,
        "chat_template": CHAT_TEMPLATE,
    });
    crate::save::write_json(&dir.join("tokenizer_config.json"), &config)
}

fn learn(seed: u64) -> tokenizers::Result<Tokenizer> {
    let mut tokenizer = Tokenizer::new(BPE::default());
    let pieces = Splitter::new(SplitPattern::Regex(PIECES.into()), SplitDelimiterBehavior::Isolated, false)?;
    let bytes = ByteLevel::new(false, true, false);
    tokenizer.with_pre_tokenizer(Some(Sequence::new(vec![pieces.into(), bytes.into()])));
    let special = SPECIAL.map(|token| AddedToken::from(token, true)).to_vec();
    let trainer: BpeTrainer = BpeTrainer::builder()
        .vocab_size(VOCABULARY)
        .min_frequency(2)
        .show_progress(false)
        .special_tokens(special)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let text = (0..CHARTS).map(|index| {
        let chart = Chart::new(seed, Split::Train, index);
        format!("USER: \n{} ASSISTANT: {}", chart.question, chart.answer)
    });
    tokenizer.train(&mut TrainerWrapper::from(trainer), text)?;
    Ok(tokenizer)
}

/// LLaVA-1.5's turns, without a system prompt.
const CHAT_TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}\
    USER: {{ message['content'] }} {% elif message['role'] == 'assistant' %}\
    ASSISTANT: {{ message['content'] }}{{ eos_token }}{% else %}{{ message['content'] }} {% endif %}{% endfor %}\
    {% if add_generation_prompt %}ASSISTANT:{% endif %}";
