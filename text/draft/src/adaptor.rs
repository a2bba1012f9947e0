//! ViSpec's image adaptor (Kang et al. 2025, "ViSpec: Accelerating Vision-Language Models with Vision-Aware Speculative
//! Decoding"): a few learned queries read all embeddings of an image at once.

use burn::module::Param;
use burn::prelude::*;
use burn::tensor::activation::softmax;
use burn::tensor::{DType, Distribution};
use sightdraft_core::{Checkpoint, Error, Result};
use sightdraft_target::{LlamaConfig, Projection};

/// Multi-head attention of learned queries over an image: no causality, no positions, no grouping of heads.
#[derive(Module, Debug)]
pub struct ImageAdaptor {
    /// Queries `[num_q, heads, d]`.
    pub q: Param<Tensor<3>>,
    /// Keys, `[H] -> [heads * d]`.
    pub k_proj: Projection,
    /// Values, `[H] -> [heads * d]`.
    pub v_proj: Projection,
    /// Output, `[heads * d] -> [H]`.
    pub o_proj: Projection,
}

impl ImageAdaptor {
    /// A fresh adaptor of `queries` queries, as many heads as the layer of `config` has; queries normal with standard deviation
    /// 1/sqrt(d), matrices with `std`.
    pub fn init(queries: usize, config: &LlamaConfig, std: f64, device: &Device) -> Self {
        let heads = config.num_attention_heads;
        let head_dim = config.hidden_size / heads;
        let normal = Distribution::Normal(0.0, (head_dim as f64).powf(-0.5));
        let matrix = |input, output| Projection::init(input, output, false, std, device);
        Self {
            q: Param::from_tensor(Tensor::random([queries, heads, head_dim], normal, device)),
            k_proj: matrix(config.hidden_size, heads * head_dim),
            v_proj: matrix(config.hidden_size, heads * head_dim),
            o_proj: matrix(heads * head_dim, config.hidden_size),
        }
    }

    /// Reads `{prefix}.q` and `{prefix}.{k,v,o}_proj`; how many queries there are is the checkpoint's to say. Biases are taken
    /// where the checkpoint has them.
    ///
    /// # Errors
    /// A missing tensor or another shape.
    pub fn load(checkpoint: &Checkpoint, prefix: &str, config: &LlamaConfig, device: &Device) -> Result<Self> {
        let name = format!("{prefix}.q");
        let shape = checkpoint.shape(&name).unwrap_or_default();
        let &[queries, heads, head_dim] = shape.as_slice() else {
            let expected = format!("{name} of shape [queries, heads, width of a head]");
            let found = if checkpoint.has(&name) { format!("{shape:?}") } else { "no such tensor".into() };
            return Err(Error::file(checkpoint.path(&name), expected, found, "use a ViSpec draft"));
        };
        if queries * heads * head_dim == 0 {
            let expected = format!("at least one query in {name}");
            return Err(Error::file(
                checkpoint.path(&name),
                expected,
                format!("shape {shape:?}"),
                "use a ViSpec draft",
            ));
        }
        let matrix = |name: &str, input: usize, output: usize| {
            let name = format!("{prefix}.{name}");
            let bias = checkpoint.has(&format!("{name}.bias"));
            Projection::load(checkpoint, &name, input, output, bias, device)
        };
        let (width, inner) = (config.hidden_size, heads * head_dim);
        let q = checkpoint.tensor(&name, [queries, heads, head_dim], checkpoint.dtype(), device)?;
        Ok(Self {
            q: Param::from_tensor(q),
            k_proj: matrix("k_proj", width, inner)?,
            v_proj: matrix("v_proj", width, inner)?,
            o_proj: matrix("o_proj", inner, width)?,
        })
    }

    /// The form for inference, see [`Projection::for_inference`].
    pub fn for_inference(self) -> Self {
        Self {
            k_proj: self.k_proj.for_inference(),
            v_proj: self.v_proj.for_inference(),
            o_proj: self.o_proj.for_inference(),
            ..self
        }
    }

    /// How many queries there are, `num_q`.
    pub fn queries(&self) -> usize {
        self.q.dims()[0]
    }

    /// What the queries read of one image's embeddings: `[n, H] -> [num_q, H]`.
    pub fn forward(&self, image: Tensor<2>) -> Tensor<2> {
        let ([queries, heads, head_dim], n) = (self.q.dims(), image.dims()[0]);
        let split = |rows: Tensor<2>| rows.reshape([n, heads, head_dim]).swap_dims(0, 1);
        let keys = split(self.k_proj.forward(image.clone()));
        let values = split(self.v_proj.forward(image));
        let dtype = keys.dtype();
        let q = self.q.val().cast(dtype).swap_dims(0, 1) * (head_dim as f64).powf(-0.5);
        let scores = q.matmul(keys.swap_dims(1, 2)).cast(DType::F32);
        let read = softmax(scores, 2).cast(dtype).matmul(values);
        self.o_proj.forward(read.swap_dims(0, 1).reshape([queries, heads * head_dim]))
    }
}
