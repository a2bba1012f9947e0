//! Recipes: every key documented, defaulted, and checked. Unknown keys are errors.

use serde::{Deserialize, Serialize};
use sightdraft_core::{Error, Result};

use crate::objective::{
    Ce, Dpace, Eagle1Loss, GriffinLoss, HassLoss, Lk, LkHybrid, Objective, SoftCe, Sum, Tv, Vat, VispecLoss, Vsd,
};
use crate::ranges::Range;

/// Which objective, by name. In a recipe `objective = "vsd"` is short for a table of that name with all keys defaulted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum ObjectiveConfig {
    /// EAGLE-3's cross-entropy.
    SoftCe(SoftCe),
    /// Variational Speculative Decoding.
    Vsd(Vsd),
    /// Likelihood of the data's tokens.
    Ce(Ce),
    /// Total variation.
    Tv(Tv),
    /// Log of the acceptance rate.
    Lk(Lk),
    /// Cross-entropy that turns into total variation.
    LkHybrid(LkHybrid),
    /// Cross-entropy weighted by survival.
    Dpace(Dpace),
    /// Cross-entropy weighted by the first rejection.
    Vat(Vat),
    /// EAGLE-1's, EAGLE-2's and MSD's published loss.
    Eagle1(Eagle1Loss),
    /// HASS's published loss.
    Hass(HassLoss),
    /// GRIFFIN's published loss.
    Griffin(GriffinLoss),
    /// ViSpec's published losses.
    Vispec(VispecLoss),
    /// Several at once.
    Sum(Sum),
}

impl ObjectiveConfig {
    /// The objective itself.
    pub fn objective(&self) -> &dyn Objective {
        match self {
            Self::SoftCe(o) => o,
            Self::Vsd(o) => o.mode(),
            Self::Ce(o) => o,
            Self::Tv(o) => o,
            Self::Lk(o) => o,
            Self::LkHybrid(o) => o,
            Self::Dpace(o) => o,
            Self::Vat(o) => o,
            Self::Eagle1(o) => o,
            Self::Hass(o) => o,
            Self::Griffin(o) => o,
            Self::Vispec(o) => o,
            Self::Sum(o) => o,
        }
    }

    fn validate(&self) -> Result<()> {
        Range::check(self.objective().ranges().into_iter().map(|range| range.under("objective")))?;
        let Self::Sum(sum) = self else { return Ok(()) };
        // One rollout serves all terms, so they have to want the same one.
        let requests = sum.terms.iter().filter_map(|term| term.objective.objective().rollout());
        let requests: Vec<_> = requests.collect();
        if requests.windows(2).any(|pair| pair[0] != pair[1]) {
            let mend = "give them the same mode, samples and anchors, or keep one of them";
            return Err(Error::invalid("objective.terms", "terms that sample the same paths", self.name(), mend));
        }
        Ok(())
    }

    fn name(&self) -> String {
        self.objective().name()
    }
}

/// AdamW with linear warm-up and cosine decay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimConfig {
    /// Peak learning rate; default 1e-4.
    pub lr: f64,
    /// The cosine ends at this share of the peak; default 0.05.
    pub final_lr: f64,
    /// Share of all steps that warms up; default 0.05.
    pub warmup: f64,
    /// Decay of the first moment; default 0.9.
    pub beta1: f32,
    /// Decay of the second moment; default 0.95.
    pub beta2: f32,
    /// Added to the root of the second moment; default 1e-8.
    pub epsilon: f32,
    /// Decoupled weight decay; default 0.
    pub weight_decay: f32,
    /// The gradient's global norm is clipped here; default 0.5.
    pub clip: f64,
}

impl Default for OptimConfig {
    fn default() -> Self {
        let (lr, final_lr, warmup, clip) = (1e-4, 0.05, 0.05, 0.5);
        Self { lr, final_lr, warmup, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.0, clip }
    }
}

impl OptimConfig {
    /// Checks what types cannot.
    fn validate(&self) -> Result<()> {
        let ranges = [
            Range::positive("lr", self.lr),
            Range::share("final_lr", self.final_lr),
            Range::share("warmup", self.warmup),
            Range::below_one("beta1", self.beta1),
            Range::below_one("beta2", self.beta2),
            Range::positive("epsilon", self.epsilon),
            Range::share("weight_decay", self.weight_decay),
            Range::positive("clip", self.clip),
        ];
        Range::check(ranges.map(|range| range.under("optim")))
    }

    /// The learning rate of optimiser step `step` (from 0) of `total`.
    pub fn learning_rate(&self, step: usize, total: usize) -> f64 {
        let warm = (self.warmup * total as f64).ceil();
        let at = step as f64 + 1.0;
        if at <= warm {
            return self.lr * at / warm;
        }
        let progress = ((at - warm) / (total as f64 - warm).max(1.0)).min(1.0);
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
        self.lr * (self.final_lr + (1.0 - self.final_lr) * cosine)
    }
}

/// Where the target's features come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Features {
    /// A target pass in every step.
    #[default]
    Online,
    /// One target pass in all, kept as f16.
    Disk,
}

/// A training run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Fixes everything: order, samples; default 42.
    pub seed: u64,
    /// Unrolled steps, L; default 5.
    pub unroll: usize,
    /// Steps of the chains that held-out acceptance is measured on; default as many as `unroll`. Drafts that are trained on
    /// fewer steps than they are compared with name it.
    pub held_out_unroll: Option<usize>,
    /// The objective; default `soft_ce`.
    pub objective: ObjectiveConfig,
    /// The optimiser.
    pub optim: OptimConfig,
    /// Times through the data; default 1.
    pub epochs: usize,
    /// Stops earlier, in optimiser steps; the schedule ends there too. Default none.
    pub max_steps: Option<usize>,
    /// Rows of one batch, padding included; default 1024.
    pub batch_tokens: usize,
    /// Batches per optimiser step; default 1.
    pub accumulate: usize,
    /// Longer conversations are left out (and counted); default 2048 rows.
    pub max_length: usize,
    /// Optimiser steps between checkpoints; default 100.
    pub checkpoint_every: usize,
    /// Optimiser steps between held-out measurements; default 100.
    pub evaluate_every: usize,
    /// Where the target's features come from; default online.
    pub features: Features,
    /// Uniform noise on the features that the draft reads, scaled by 512 over the sequence's rows; the EAGLE-1 family is
    /// published with 0.2. Default 0.
    pub feature_noise: f32,
    /// The share of conversations with images rises linearly from 0 to 1 over the run, as in MSD's second stage; otherwise
    /// every epoch sees all conversations once. Default off.
    pub visual_ramp: bool,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            seed: 42,
            unroll: 5,
            held_out_unroll: None,
            objective: ObjectiveConfig::SoftCe(SoftCe::default()),
            optim: OptimConfig::default(),
            epochs: 1,
            max_steps: None,
            batch_tokens: 1024,
            accumulate: 1,
            max_length: 2048,
            checkpoint_every: 100,
            evaluate_every: 100,
            features: Features::Online,
            feature_noise: 0.0,
            visual_ramp: false,
        }
    }
}

impl TrainConfig {
    /// Steps of the chains that held-out acceptance is measured on.
    pub fn held_out_unroll(&self) -> usize {
        self.held_out_unroll.unwrap_or(self.unroll)
    }

    /// Checks what types cannot.
    ///
    /// # Errors
    /// The key, what fits, what was given.
    pub fn validate(&self) -> Result<()> {
        let counts = [
            ("unroll", self.unroll),
            ("held_out_unroll", self.held_out_unroll()),
            ("epochs", self.epochs),
            ("batch_tokens", self.batch_tokens),
            ("accumulate", self.accumulate),
            ("checkpoint_every", self.checkpoint_every),
            ("evaluate_every", self.evaluate_every),
            ("max_length", self.max_length),
            ("max_steps", self.max_steps.unwrap_or(1)),
        ];
        Range::check(counts.map(|(key, count)| Range::count(key, count, usize::MAX)))?;
        Range::check([Range::weight("feature_noise", self.feature_noise)])?;
        self.objective.validate()?;
        self.optim.validate()?;
        if self.features == Features::Disk && self.objective.objective().rollout().is_some() {
            let mend = "set features = \"online\": scoring sampled paths needs the target";
            return Err(Error::invalid("features", "online for this objective", "disk", mend));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::Survival;

    fn parse(objective: &str) -> ObjectiveConfig {
        let text = format!(r#"{{"objective": {objective}}}"#);
        let config: TrainConfig = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{objective}: {e}"));
        config.objective
    }

    fn refusal(text: &str) -> String {
        serde_json::from_str::<TrainConfig>(text).unwrap().validate().unwrap_err().to_string()
    }

    #[test]
    fn recipes_are_named_defaulted_and_strict() {
        let ObjectiveConfig::Vsd(Vsd::Em(em)) = parse(r#"{"name": "vsd", "mode": "em", "samples": 64, "car": false}"#)
        else {
            panic!("not em")
        };
        assert_eq!((em.samples, em.car, em.arw), (64, false, true));
        assert_eq!(parse(r#"{"name": "vsd"}"#), ObjectiveConfig::Vsd(Vsd::Survival(Survival::default())));
        for wrong in [
            r#"{"sed": 1}"#,
            r#"{"objective": {"name": "em"}}"#,
            r#"{"objective": {"name": "vsd", "mode": "em", "sample": 1}}"#,
            r#"{"objective": {"name": "vsd", "car": true}}"#,
            r#"{"objective": {"name": "sum", "terms": [{"weight": 1, "name": "tv", "eta": 1}]}}"#,
            r#"{"objective": {"name": "sum", "terms": [{"name": "tv"}]}}"#,
            r#"{"optim": {"rate": 1}}"#,
        ] {
            assert!(serde_json::from_str::<TrainConfig>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_objective_survives_being_written_and_read() {
        for name in
            ["soft_ce", "vsd", "ce", "tv", "lk", "lk_hybrid", "dpace", "vat", "eagle1", "hass", "griffin", "vispec"]
        {
            let objective = parse(&format!(r#"{{"name": "{name}"}}"#));
            objective.validate().unwrap();
            assert!(objective.name().starts_with(name), "{name}");
            let written = serde_json::to_string(&objective).unwrap();
            assert_eq!(serde_json::from_str::<ObjectiveConfig>(&written).unwrap(), objective, "{written}");
        }
        let terms = r#"[{"weight": 1, "name": "vsd", "mode": "em", "arw": false}, {"weight": 0.5, "name": "lk"}]"#;
        let sum = parse(&format!(r#"{{"name": "sum", "terms": {terms}}}"#));
        sum.validate().unwrap();
        assert_eq!(sum.name(), "1 vsd (em) + 0.5 lk");
        let written = serde_json::to_string(&sum).unwrap();
        assert_eq!(serde_json::from_str::<ObjectiveConfig>(&written).unwrap(), sum, "{written}");
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused_by_key() {
        for (key, wrong) in [("lr", "-1.0"), ("warmup", "1.5"), ("beta2", "1.0"), ("clip", "0.0"), ("epsilon", "0.0")] {
            let message = refusal(&format!(r#"{{"optim": {{"{key}": {wrong}}}}}"#));
            assert!(message.contains(&format!("optim.{key}")), "{message}");
        }
        for (name, key, wrong) in [
            ("vsd", "samples", "65"),
            ("vsd", "anchor", "-0.1"),
            (r#"vsd", "mode": "em"#, "gamma", "-1.0"),
            (r#"vsd", "mode": "em"#, "lambda", "-1.0"),
            (r#"vsd", "mode": "em"#, "anchors", "0"),
            (r#"vsd", "mode": "elbo"#, "samples", "0"),
            ("soft_ce", "decay", "1.5"),
            ("ce", "decay", "0.0"),
            ("tv", "decay", "2"),
            ("lk", "decay", "-1"),
            ("lk_hybrid", "eta", "-3"),
            ("dpace", "smoothing", "1.1"),
            ("vat", "decay", "0"),
            ("eagle1", "ce", "-1"),
            ("hass", "top_k", "-1"),
            ("griffin", "align", "0"),
            ("vispec", "stage", "3"),
        ] {
            let message = refusal(&format!(r#"{{"objective": {{"name": "{name}", "{key}": {wrong}}}}}"#));
            assert!(message.starts_with(&format!("objective.{key}")), "{message}");
        }
        for (terms, word) in [
            ("[]", "objective.terms"),
            (r#"[{"weight": -1, "name": "tv"}]"#, "objective.terms[0].weight"),
            (r#"[{"weight": 1, "name": "vat", "decay": 0}]"#, "objective.terms[0].decay"),
            (
                r#"[{"weight": 1, "name": "vsd", "mode": "elbo"}, {"weight": 1, "name": "vsd", "mode": "em", "oracle": "ratio"}]"#,
                "sample the same paths",
            ),
        ] {
            let message = refusal(&format!(r#"{{"objective": {{"name": "sum", "terms": {terms}}}}}"#));
            assert!(message.contains(word), "{message}");
        }
    }

    #[test]
    fn the_schedule_warms_up_and_comes_down() {
        let optim = OptimConfig { lr: 1.0, final_lr: 0.1, warmup: 0.1, ..OptimConfig::default() };
        assert_eq!(optim.learning_rate(0, 100), 0.1);
        assert_eq!(optim.learning_rate(9, 100), 1.0);
        assert!((optim.learning_rate(54, 100) - 0.55).abs() < 1e-9);
        assert!((optim.learning_rate(99, 100) - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_run_of_no_steps_is_refused_by_name() {
        for (text, key) in [(r#"{"max_steps": 0}"#, "max_steps"), (r#"{"max_length": 0}"#, "max_length")] {
            let message = serde_json::from_str::<TrainConfig>(text).unwrap().validate().unwrap_err().to_string();
            assert!(message.starts_with(key), "{message}");
        }
    }
}
