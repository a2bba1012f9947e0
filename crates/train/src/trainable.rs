//! A draft's parameters as the optimiser sees them.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::prelude::*;
use sightdraft_draft::DraftModel;

/// `draft` with gradients on every parameter. `ids`, where given, are the parameters' ids in visiting order: an optimiser's
/// record is filed under them.
pub fn trainable(draft: DraftModel, ids: Option<&[u64]>) -> DraftModel {
    draft.map(&mut Track { ids: ids.map(<[u64]>::iter) })
}

/// The ids of all parameters in visiting order.
pub fn param_ids(draft: &DraftModel) -> Vec<u64> {
    let mut ids = Collect(vec![]);
    draft.visit(&mut ids);
    ids.0
}

struct Track<'a> {
    ids: Option<std::slice::Iter<'a, u64>>,
}

impl ModuleMapper for Track<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let id = self.ids.as_mut().and_then(Iterator::next).map_or(param.id, |id| ParamId::from(*id));
        // Weights loaded on a plain device stay untracked under `Module::train`: a leaf has to be made here.
        Param::initialized(id, param.val().inner().autodiff().require_grad())
    }
}

struct Collect(Vec<u64>);

impl ModuleVisitor for Collect {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.id.val());
    }
}
